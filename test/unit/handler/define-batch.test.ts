// What the types promise an author of a batch handler. tsc checks the expectations on types.
import { describe, expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import { type BatchContext, type BatchJob, defineBatchHandler } from '../../../src/index.ts';

const input = z.strictObject({ prompt: z.string(), count: z.number().default(1) });
const output = z.strictObject({ total: z.number() });
const batch = { maxSize: 8, maxWaitMs: 5 };

describe('defineBatchHandler', () => {
  it('returns its argument', () => {
    const definition = { input, batch, run: () => [] };
    expect(defineBatchHandler(definition)).toBe(definition);
  });

  it('infers jobs and keys from the input schema', () => {
    defineBatchHandler({
      input,
      batch: { ...batch, key: ({ prompt }) => prompt.slice(0, 1) },
      run(jobs, ctx) {
        expectTypeOf(jobs).toEqualTypeOf<readonly BatchJob<{ prompt: string; count: number }>[]>();
        expectTypeOf(ctx).toEqualTypeOf<BatchContext>();
        return jobs.map((job) => {
          expectTypeOf(job.signal).toEqualTypeOf<AbortSignal>();
          return job.attempt;
        });
      },
    });
    defineBatchHandler({
      batch,
      run: (jobs) => jobs.map((job) => expectTypeOf(job.input).toBeUnknown()),
    });
  });

  it('checks outputs and chunks against the output schema', () => {
    defineBatchHandler({
      input,
      output,
      batch,
      run: async (jobs, ctx) =>
        jobs.map((job) => {
          if (job.input.count > 0) return { total: job.input.count };
          ctx.fail(job, new Error('nothing'));
          return undefined;
        }),
    });
    defineBatchHandler({
      output,
      batch,
      async *run(jobs) {
        for (const job of jobs) yield { job, output: { total: 1 }, metrics: { tokens: 1 } };
        yield { job: 0, output: { total: 2 } };
      },
    });
    // @ts-expect-error: the total is a number.
    defineBatchHandler({ output, batch, run: async () => [{ total: 'many' }] });
    // @ts-expect-error: an array has the outputs.
    defineBatchHandler({ output, batch, run: async () => ({ total: 1 }) });
    // @ts-expect-error: a chunk names its job.
    // biome-ignore format: the expectation is for one line.
    defineBatchHandler({ output, batch, async *run() { yield { total: 1 }; } });
    expectTypeOf(output).not.toBeAny();
  });

  it('refuses unknown and missing members', () => {
    // @ts-expect-error: a batch has a longest wait.
    defineBatchHandler({ batch: { maxSize: 8 }, run: () => [] });
    // @ts-expect-error: there is nothing to collect.
    defineBatchHandler({ run: () => [] });
    // @ts-expect-error: a key is a text.
    defineBatchHandler({ input, batch: { ...batch, key: ({ count }) => count }, run: () => [] });
  });
});
