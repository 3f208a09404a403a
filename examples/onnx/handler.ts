// Tells the direction of lines in pictures with a network in ONNX Runtime: one call for many jobs, on the GPU
// if the worker has one.
import { fileURLToPath } from 'node:url';
import { defineBatchHandler } from 'millrace';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { z } from 'zod';
import { LABELS } from './network.ts';

const MODEL = fileURLToPath(new URL('./model.onnx', import.meta.url));

/** `#` is a black pixel, `.` a white one. */
const input = z
  .strictObject({
    rows: z
      .array(z.string().regex(/^[.#]{3,256}$/))
      .min(3)
      .max(256),
  })
  .refine(({ rows }) => rows.every((row) => row.length === rows[0]?.length), {
    path: ['rows'],
    message: 'rows must have the same length',
  });

let session: InferenceSession | undefined;

/** @returns probabilities, one row for each picture. All pictures have the same size. */
async function classify(pictures: readonly (readonly string[])[]): Promise<number[][]> {
  const [height = 0, width = 0] = [pictures[0]?.length, pictures[0]?.[0]?.length];
  const pixels = Float32Array.from(pictures.flat().join(''), (letter) => Number(letter === '#'));
  const tensor = new Tensor('float32', pixels, [pictures.length, 1, height, width]);
  const outputs = await session?.run({ pixels: tensor });
  const probabilities = outputs?.['probabilities'];
  if (!probabilities) throw new Error(`${MODEL} has no output named probabilities`);
  const values = Array.from(probabilities.data, Number);
  return pictures.map((_, row) => values.slice(row * LABELS.length, (row + 1) * LABELS.length));
}

export default defineBatchHandler({
  input,
  output: z.strictObject({
    label: z.enum(LABELS),
    probability: z.number(),
    batchSize: z.int(),
  }),
  batch: {
    maxSize: 32,
    maxWaitMs: 10,
    // A tensor has one height and one width: only pictures of the same size share a batch.
    key: ({ rows }) => `${rows.length}x${rows[0]?.length}`,
  },

  async setup({ devices, log }) {
    // ONNX Runtime reads the environment of the process, which a thread cannot change.
    if (process.env['ORT_DISABLE_TELEMETRY'] !== '1') {
      throw new Error(
        'ONNX Runtime would send usage data to Microsoft: start the worker with ORT_DISABLE_TELEMETRY=1',
      );
    }
    // A process sees only its own devices: CUDA's device 0, the default, is the first of them.
    const provider = devices[0]?.kind === 'gpu' ? 'cuda' : 'cpu';
    session = await InferenceSession.create(MODEL, { executionProviders: [provider] });
    log.info({ provider }, 'model loaded');
  },

  teardown: () => session?.release(),

  async run(jobs) {
    const classified = await classify(jobs.map(({ input: { rows } }) => rows));
    return classified.map((probabilities) => {
      const scores = LABELS.map((label, index) => ({ label, score: probabilities[index] ?? 0 }));
      const best = scores.reduce((one, other) => (other.score > one.score ? other : one));
      const probability = Number(best.score.toFixed(3));
      return { label: best.label, probability, batchSize: jobs.length };
    });
  },
});
