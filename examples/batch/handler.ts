// Runs several jobs in one call. The model here is a matrix product, which reads the weights once for all jobs.
import { defineBatchHandler } from 'millrace';
import { z } from 'zod';

const DIMENSIONS = 4;

/** One weight for each of the 256 bytes and each dimension; a real model loads them in `setup`. */
let weights = new Float64Array(0);

function embedAll(texts: readonly string[]): number[][] {
  const vectors = texts.map(() => new Float64Array(DIMENSIONS));
  const bytes = texts.map((text) => Buffer.from(text));
  for (let dimension = 0; dimension < DIMENSIONS; dimension++) {
    const row = weights.subarray(dimension * 256, (dimension + 1) * 256);
    for (const [index, vector] of vectors.entries()) {
      for (const byte of bytes[index] ?? [])
        vector[dimension] = (vector[dimension] ?? 0) + (row[byte] ?? 0);
    }
  }
  return vectors.map((vector) => Array.from(vector, (value) => Math.round(value * 100) / 100));
}

export default defineBatchHandler({
  input: z.strictObject({ text: z.string().max(1_000) }),
  output: z.strictObject({ vector: z.array(z.number()), batchSize: z.int() }),
  batch: { maxSize: 8, maxWaitMs: 10 },

  setup() {
    weights = Float64Array.from({ length: DIMENSIONS * 256 }, (_, index) => Math.sin(index + 1));
  },

  run(jobs, ctx) {
    for (const job of jobs) {
      // Fails this job; the others go on.
      if (job.input.text === '') ctx.fail(job, new Error('there is nothing to embed'));
    }
    const vectors = embedAll(jobs.map((job) => job.input.text));
    return vectors.map((vector) => ({ vector, batchSize: jobs.length }));
  },
});
