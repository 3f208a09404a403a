// Computes the embeddings of many jobs in one call of a model process in Python, model.py.
import { fileURLToPath } from 'node:url';
import { defineBatchHandler } from 'millrace';
import { createModelProcess } from 'millrace/process';
import { z } from 'zod';

const model = createModelProcess({
  command: 'python3',
  args: [fileURLToPath(new URL('./model.py', import.meta.url))],
});

export default defineBatchHandler({
  input: z.strictObject({ text: z.string().min(1).max(10_000) }),
  batch: { maxSize: 32, maxWaitMs: 10 },
  setup: (ctx) => model.start(ctx),
  teardown: () => model.stop(),
  async run(jobs, ctx) {
    const inputs = jobs.map(({ input }) => ({ text: Buffer.from(input.text) }));
    const results = await model.callBatch<Buffer>('embed', inputs, ctx);
    return results.map((result, index) => {
      if (result.status === 'fulfilled') return { embedding: readFloats(result.value) };
      ctx.fail(index, result.reason);
      return undefined;
    });
  },
});

/** An array of numpy arrives as its bytes. */
function readFloats({ buffer, byteLength, byteOffset }: Buffer): number[] {
  const floats = new Float32Array(buffer, byteOffset, byteLength / Float32Array.BYTES_PER_ELEMENT);
  return Array.from(floats, (value) => Number(value.toFixed(3)));
}
