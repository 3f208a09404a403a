// What the types promise an author of a handler or a batch handler: `job` and `ctx` follow from the schema, wrong use does not compile.
// The expectations on types are checked by tsc, which `npm test` runs over the tests as well.
import { describe, expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import {
  type BatchContext,
  type BatchJob,
  type Context,
  defineBatchHandler,
  defineHandler,
  type InferOutput,
  type Job,
  type Schema,
} from '../../../src/index.ts';

const input = z.strictObject({ prompt: z.string(), count: z.number().default(1) });
type Input = { prompt: string; count: number };

describe('defineHandler', () => {
  it('returns its argument', () => {
    const definition = { input, run: () => 1 };
    expect(defineHandler(definition)).toBe(definition);
  });

  it('infers the handler’s input from the schema’s output', () => {
    defineHandler({
      input,
      run(job, ctx) {
        expectTypeOf(job.input).toEqualTypeOf<Input>();
        expectTypeOf(ctx).toEqualTypeOf<Context>();
      },
    });
    defineHandler({
      input,
      async *run({ input: { prompt } }, ctx) {
        expectTypeOf(prompt).toBeString();
        yield ctx.chunk(prompt, { tokens: 1 });
      },
    });
    const dated = z.object({ day: z.string().transform((text) => new Date(text)) });
    defineHandler({
      input: dated,
      run: (job) => expectTypeOf(job.input).toEqualTypeOf<{ day: Date }>(),
    });
    expectTypeOf<InferOutput<typeof dated>>().toEqualTypeOf<{ day: Date }>();
  });

  it('accepts schemas of any library, and leaves input unknown without one', () => {
    const validate = (value: unknown) => ({ value: Number(value) });
    const other: Schema<unknown, number> = {
      '~standard': { version: 1, vendor: 'test', validate },
    };
    defineHandler({ input: other, run: (job) => expectTypeOf(job.input).toBeNumber() });
    defineHandler({ run: (job) => expectTypeOf(job.input).toBeUnknown() });
  });

  it('takes the input’s type from `run` if there is no schema', () => {
    const handler = defineHandler({ run: (job: Job<{ n: number }>) => job.input.n });
    expectTypeOf<Parameters<typeof handler.run>[0]>().toEqualTypeOf<Job<{ n: number }>>();
    expectTypeOf(handler.run).returns.toBeNumber();
    defineHandler({
      setup: () => {},
      async *run(job: Job<{ n: number }>, ctx) {
        expectTypeOf(ctx).toEqualTypeOf<Context>();
        yield ctx.chunk(job.input.n, {});
      },
    });
    // @ts-expect-error: the schema yields another input than `run` takes.
    defineHandler({ input, run: (job: Job<{ n: number }>) => job.input.n });
    defineBatchHandler({
      batch: { maxSize: 2, maxWaitMs: 1, key: ({ model }) => model },
      run: (jobs: readonly BatchJob<{ model: string }>[]) => jobs.map(({ input }) => input.model),
    });
  });

  it('checks outputs against the output schema', () => {
    const output = z.strictObject({ total: z.number() });
    defineHandler({ output, run: async () => ({ total: 1 }) });
    defineHandler({
      output,
      async *run(_job, ctx) {
        yield { total: 1 };
        yield ctx.chunk({ total: 2 }, {});
      },
    });
    // @ts-expect-error: the total is a number.
    defineHandler({ output, run: async () => ({ total: 'many' }) });
    // @ts-expect-error: what is yielded, too.
    // biome-ignore format: the expectation is for one line.
    defineHandler({ output, async *run() { yield { sum: 1 }; } });
    expectTypeOf(output).not.toBeAny();
  });

  it('refuses unknown members', () => {
    // @ts-expect-error: the input has no such member.
    defineHandler({ input, run: (job) => job.input.nothing });
    // @ts-expect-error: it belongs into `config`.
    defineHandler({ run: () => 1, concurrency: 3 });
    // @ts-expect-error: the setting is called timeoutMs.
    defineHandler({ run: () => 1, config: { timeout: 3 } });
    // @ts-expect-error: an object is no schema.
    defineHandler({ input: { prompt: 'string' }, run: () => 1 });
    // @ts-expect-error: metrics are numbers.
    defineHandler({ run: (_job, ctx) => ctx.chunk('a', { tokens: 'three' }) });
    // @ts-expect-error: there is nothing to run.
    defineHandler({ input });
  });
});

describe('a handler of plain exports', () => {
  it('has its declared types and cannot change its job', () => {
    const handler = (job: Job<z.infer<typeof input>>, { signal }: Context) => {
      expectTypeOf(job.input).toEqualTypeOf<Input>();
      expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
      // @ts-expect-error: it is read-only.
      job.id = 'other';
    };
    defineHandler({ input, run: handler });
    // @ts-expect-error: the schema makes something else.
    defineHandler({ input: z.string(), run: handler });
  });
});

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
