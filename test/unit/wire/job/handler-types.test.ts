// The types that a client and a test get from a handler. tsc checks these expectations; `npm test` runs it over
// the tests as well.
import { describe, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import type { Client, JobRecord, RunResult } from '../../../../src/client.ts';
import {
  type Context,
  defineBatchHandler,
  defineHandler,
  type Job,
  type Schema,
} from '../../../../src/index.ts';
import { createHarness, runHandler } from '../../../../src/testing.ts';
import type {
  ChunkOf,
  InputOf,
  Jsonify,
  OutputOf,
} from '../../../../src/wire/job/handler-types.ts';

const input = z.strictObject({ prompt: z.string(), count: z.number().default(1) });
type Sent = { prompt: string; count?: number | undefined };

const plain = async (job: Job<{ prompt: string }>) => ({ text: job.input.prompt });
async function* stream(job: Job<{ prompt: string }>, ctx: Context) {
  yield ctx.chunk({ token: job.input.prompt }, { tokens: 1 });
}
function* summed(job: Job<{ to: number }>) {
  for (let n = 0; n < job.input.to; n++) yield Promise.resolve(n);
  return { sum: job.input.to };
}

describe('the input of a handler', () => {
  it('is the type of job.input', () => {
    expectTypeOf<InputOf<typeof plain>>().toEqualTypeOf<{ prompt: string }>();
    expectTypeOf<InputOf<typeof stream>>().toEqualTypeOf<{ prompt: string }>();
  });

  it('is what its schema takes, not what the schema returns', () => {
    const defined = defineHandler({ input, run: ({ input: { count } }) => count });
    expectTypeOf<InputOf<typeof defined>>().toEqualTypeOf<Sent>();
    type Module = { default: (job: Job<z.infer<typeof input>>) => number; input: typeof input };
    expectTypeOf<InputOf<Module>>().toEqualTypeOf<Sent>();
    expectTypeOf<InputOf<{ default: typeof defined }>>().toEqualTypeOf<Sent>();
  });

  it('is that of one job in a batch handler', () => {
    const batch = { maxSize: 2, maxWaitMs: 1 };
    const defined = defineBatchHandler({ input, batch, run: (jobs) => jobs.map(() => ({ n: 1 })) });
    expectTypeOf<InputOf<typeof defined>>().toEqualTypeOf<Sent>();
    expectTypeOf<OutputOf<typeof defined>>().toEqualTypeOf<{ n: number }>();
  });

  it('is any object if nothing is known of it', () => {
    const none = defineHandler({ run: () => 1 });
    const other: Schema = {
      '~standard': { version: 1, vendor: 'x', validate: () => ({ value: 1 }) },
    };
    const opaque = defineHandler({ input: other, run: () => 1 });
    expectTypeOf<InputOf<unknown>>().toEqualTypeOf<object>();
    expectTypeOf<InputOf<typeof none>>().toEqualTypeOf<object>();
    expectTypeOf<InputOf<typeof opaque>>().toEqualTypeOf<object>();
    expectTypeOf<InputOf<() => 1>>().toEqualTypeOf<object>();
  });
});

describe('the output of a handler', () => {
  it('is what it returns, or null', () => {
    expectTypeOf<OutputOf<typeof plain>>().toEqualTypeOf<{ text: string }>();
    expectTypeOf<OutputOf<() => void>>().toEqualTypeOf<null>();
    expectTypeOf<OutputOf<() => Promise<string | undefined>>>().toEqualTypeOf<string | null>();
    expectTypeOf<OutputOf<unknown>>().toBeUnknown();
  });

  it('is the array of the chunks of a stream, or what it returns', () => {
    expectTypeOf<OutputOf<typeof stream>>().toEqualTypeOf<{ token: string }[]>();
    expectTypeOf<ChunkOf<typeof stream>>().toEqualTypeOf<{ token: string }>();
    expectTypeOf<OutputOf<typeof summed>>().toEqualTypeOf<{ sum: number }>();
    expectTypeOf<ChunkOf<typeof summed>>().toEqualTypeOf<number>();
    type Readable = () => Promise<AsyncIterable<Uint8Array>>;
    expectTypeOf<OutputOf<Readable>>().toEqualTypeOf<string[]>();
  });

  it('is what its schema returns', () => {
    const output = z.object({ day: z.date().transform((day) => day.getTime()) });
    const day = new Date();
    const one = defineHandler({ output, run: async () => ({ day }) });
    expectTypeOf<OutputOf<typeof one>>().toEqualTypeOf<{ day: number }>();
    const many = defineHandler({
      output,
      async *run() {
        yield { day };
      },
    });
    expectTypeOf<ChunkOf<typeof many>>().toEqualTypeOf<{ day: number }>();
    expectTypeOf<OutputOf<typeof many>>().toEqualTypeOf<{ day: number }[]>();
  });

  it('is the chunks of one job of a batch that streams', () => {
    const batch = { maxSize: 2, maxWaitMs: 1 };
    const defined = defineBatchHandler({
      batch,
      async *run(jobs) {
        for (const job of jobs) yield { job, output: { word: job.id } };
      },
    });
    expectTypeOf<ChunkOf<typeof defined>>().toEqualTypeOf<{ word: string }>();
    expectTypeOf<OutputOf<typeof defined>>().toEqualTypeOf<{ word: string }[]>();
  });

  it('is as JSON makes it', () => {
    expectTypeOf<
      Jsonify<{ at: Date; bytes: Uint8Array; list: readonly [Date, 1] }>
    >().toEqualTypeOf<{
      at: string;
      bytes: string;
      list: readonly [string, 1];
    }>();
    expectTypeOf<Jsonify<{ maybe?: Date }>>().toEqualTypeOf<{ maybe?: string }>();
  });
});

/** Compiled, not called. */
function use(client: Client<typeof stream>, untyped: Client): void {
  expectTypeOf(client.runsync({ prompt: 'x' })).resolves.toEqualTypeOf<
    JobRecord<{ token: string }[]>
  >();
  expectTypeOf(client.runAll([{ prompt: 'x' }])).resolves.toEqualTypeOf<
    RunResult<{ token: string }[]>[]
  >();
  // @ts-expect-error: the prompt is a string.
  void client.run({ prompt: 1 });
  // @ts-expect-error: the prompt is missing.
  void client.runAll([{}]);
  // @ts-expect-error: the member has another name.
  void client.runsync({ promt: 'x' });
  void untyped.run({ anything: 1 });
  expectTypeOf(untyped.runsync({})).resolves.toEqualTypeOf<JobRecord>();
}

describe('a typed caller', () => {
  it('cannot send a wrong input with a client', () => expectTypeOf(use).toBeFunction());

  it('cannot with runHandler either, and gets typed chunks', async () => {
    const { chunks, output } = await runHandler(stream, { prompt: 'x' });
    expectTypeOf(output).toEqualTypeOf<{ token: string }[] | undefined>();
    for (const chunk of chunks) expectTypeOf(chunk.output).toEqualTypeOf<{ token: string }>();
    // @ts-expect-error: the prompt is missing.
    await runHandler(stream, {});
  });

  it('cannot with the harness either, and gets typed results', async () => {
    await using harness = await createHarness({ handler: summed });
    const result = await harness.run({ to: 2 });
    expectTypeOf(result).toEqualTypeOf<{ sum: number }>();
    for await (const { output } of harness.stream({ to: 1 })) expectTypeOf(output).toBeNumber();
    // @ts-expect-error: `to` is a number.
    await harness.run({ to: '2' });
  });
});
