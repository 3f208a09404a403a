// One attempt, driven in this thread: what comes out of every kind of handler, and how it ends.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  type AttemptCall,
  type AttemptEnd,
  invoke,
} from '../../../../src/handler/attempt/invoke.ts';
import type { Context, Job } from '../../../../src/handler/define.ts';
import { readHandler } from '../../../../src/handler/loading/load.ts';
import { NonRetryableError, RetryAfterError } from '../../../../src/handler/thrown.ts';
import { MAX_CHUNK_BYTES } from '../../../../src/wire/chunk/chunk.ts';
import { reassemble } from '../../../../src/wire/chunk/chunk-pieces.ts';
import { RecordingSink } from '../../../support/network/recording-sink.ts';
import { cpu, readOutput } from '../../../support/workers/leases.ts';

type Handle = (job: Job<never>, ctx: Context) => unknown;

interface Run {
  input?: unknown;
  call?: Partial<AttemptCall>;
  sink?: RecordingSink;
}

function begin(
  handler: Handle | object,
  { input = {}, call = {}, sink = new RecordingSink() }: Run = {},
) {
  return invoke(
    readHandler(handler, 'handler'),
    {
      number: 1,
      jobId: 'job-1',
      attempt: 2,
      input: Buffer.from(JSON.stringify(input)),
      timeoutMs: 60_000,
      devices: [cpu],
      windowBytes: 1_000_000,
      limits: { outputBytes: 1_000, chunkTotalBytes: 10_000_000 },
      clock: new ManualClock(),
      ...call,
    },
    sink,
  );
}

function run(handler: Handle | object, options: Run = {}): Promise<AttemptEnd> {
  return begin(handler, options).end;
}

async function runAndReadError(handler: Handle | object, options: Run = {}) {
  const { outcome } = await run(handler, options);
  if (outcome.kind !== 'failed') throw new Error(`expected a failure, got ${outcome.kind}`);
  return { ...outcome.error, retry: outcome.retry, retryAfterMs: outcome.retryAfterMs };
}

describe('a handler that returns an object with an error', () => {
  const give = (value: unknown) => () => value;
  // biome-ignore lint/correctness/useYield: a generator may only return.
  const giveAtEnd = async function* () {
    return { error: 'no' };
  };
  const returning = (value: unknown, failOnReturnedError?: boolean) => ({
    run: give(value),
    ...(failOnReturnedError !== undefined && { config: { failOnReturnedError } }),
  });

  it('completes, with a warning in its log', async () => {
    const sink = new RecordingSink();
    const end = await run(returning({ error: 'no' }), { sink });
    expect(readOutput(end)).toEqual({ error: 'no' });
    expect(sink.logLines.map(({ level, msg }) => [level, msg])).toEqual([
      [40, expect.stringContaining('config.failOnReturnedError')],
    ]);
  });

  it('completes without a warning if its config says so, or if the error is empty', async () => {
    const sink = new RecordingSink();
    expect(readOutput(await run(returning({ error: 'no' }, false), { sink }))).toEqual({
      error: 'no',
    });
    for (const error of [null, '', false, undefined]) {
      const { outcome } = await run(returning({ error, n: 1 }, true), { sink });
      expect(outcome.kind).toBe('completed');
    }
    expect(sink.logLines).toEqual([]);
  });

  it.each([
    ['no', 'no'],
    [{ code: 7 }, '{"code":7}'],
  ])('fails for %j if its config says so', async (error, message) => {
    const found = await runAndReadError(returning({ error }, true));
    expect(found).toMatchObject({ code: 'handler_error', type: 'ReturnedError', message });
    expect(found.retry).toBe('default');
  });

  it('fails as a generator too', async () => {
    const handler = { run: giveAtEnd, config: { failOnReturnedError: true } };
    expect(await runAndReadError(handler)).toMatchObject({ message: 'no' });
  });
});

describe('a handler that returns', () => {
  it('completes with the value of an async function', async () => {
    const end = await run(async (job: Job<unknown>) => ({ echo: job.input, id: job.id }), {
      input: { n: 1 },
    });
    expect(end.outcome).toEqual({ kind: 'completed', executionMs: 0, output: 'value' });
    expect(readOutput(end)).toEqual({ echo: { n: 1 }, id: 'job-1' });
  });

  it('completes with the value of a plain function', async () => {
    expect(readOutput(await run(() => [1, 'two']))).toEqual([1, 'two']);
  });

  it('completes with null if it returns nothing', async () => {
    expect(readOutput(await run(() => undefined))).toBeNull();
  });

  it('requests a new worker on refreshWorker, even if it fails', async () => {
    expect((await run(() => 1)).recycle).toBeUndefined();
    const refresh: Handle = (_, { refreshWorker }) => {
      refreshWorker();
      throw new Error('the GPU is in a bad state');
    };
    expect(await run(refresh)).toMatchObject({ recycle: true, outcome: { kind: 'failed' } });
    const config = { refreshWorker: true };
    expect(await run({ default: () => 1, config })).toMatchObject({ recycle: true });
  });

  it('treats arrays and strings as values, not as streams', async () => {
    const sink = new RecordingSink();
    expect(readOutput(await run(() => 'text', { sink }))).toBe('text');
    expect(readOutput(await run(() => [1, 2], { sink }))).toEqual([1, 2]);
    expect(sink.batches).toEqual([]);
  });

  it('fails without a retry, with the path of a value that is not JSON', async () => {
    const error = await runAndReadError(() => ({ items: [{ score: Number.NaN }] }));
    expect(error).toMatchObject({ code: 'output_invalid', retry: 'never' });
    expect(error.message).toContain('output.items[0].score');
  });

  it('fails without a retry, with both sizes, if its output is too large', async () => {
    const error = await runAndReadError(() => 'é'.repeat(500));
    expect(error).toMatchObject({ code: 'output_too_large', retry: 'never' });
    expect(error.message).toMatch(/1002 bytes.*1000/);
  });

  it('may return an output of exactly the limit', async () => {
    expect((await run(() => 'é'.repeat(499))).outcome.kind).toBe('completed');
  });
});

describe('a handler that yields', () => {
  it('sends an async generator’s values as chunks in order', async () => {
    const sink = new RecordingSink();
    const end = await run(
      async function* () {
        yield 'a';
        yield { b: 1 };
      },
      { sink },
    );
    expect(end).toEqual({
      outcome: { kind: 'completed', executionMs: 0, output: 'chunks' },
      output: undefined,
    });
    expect(sink.outputs).toEqual(['a', { b: 1 }]);
    expect(sink.metrics).toEqual([{}, {}]);
  });

  it('drives a sync generator and awaits promises that it yields', async () => {
    const sink = new RecordingSink();
    await run(
      function* () {
        yield 1;
        yield Promise.resolve(2);
      },
      { sink },
    );
    expect(sink.outputs).toEqual([1, 2]);
  });

  it('drives a stream returned by an async function', async () => {
    const sink = new RecordingSink();
    await run(async () => new Blob(['bytes']).stream(), { sink });
    expect(sink.outputs).toEqual([Buffer.from('bytes').toString('base64')]);
  });

  it('has the generator’s return value as its output, beside the chunks', async () => {
    const sink = new RecordingSink();
    const end = await run(
      async function* () {
        yield 1;
        return { total: 1 };
      },
      { sink },
    );
    expect(end.outcome).toMatchObject({ kind: 'completed', output: 'value' });
    expect(readOutput(end)).toEqual({ total: 1 });
    expect(sink.outputs).toEqual([1]);
  });

  it('sends values of one turn together', async () => {
    const sink = new RecordingSink();
    await run(
      function* () {
        for (let index = 0; index < 100; index += 1) yield index;
      },
      { sink },
    );
    expect(sink.batches.length).toBeLessThan(5);
    expect(sink.outputs).toHaveLength(100);
  });

  it('sends a chunk before the next one exists', async () => {
    const sink = new RecordingSink();
    const attempt = begin(
      async function* () {
        yield 'first';
        await sink.until(({ outputs }) => outputs.length === 1);
        yield 'second';
      },
      { sink },
    );
    await attempt.end;
    expect(sink.outputs).toEqual(['first', 'second']);
  });

  it('splits a large value into pieces that reassemble to it', async () => {
    const sink = new RecordingSink();
    const text = 'ü'.repeat(1_200_000);
    const yieldText = function* () {
      yield text;
    };
    await run(yieldText, { sink, call: { windowBytes: 10_000_000 } });
    expect(Math.max(...sink.chunkSizes)).toBeLessThanOrEqual(MAX_CHUNK_BYTES);
    expect(reassemble(sink.batches.flat())).toEqual([text]);
  });

  it('pauses while too much is unacknowledged, and continues when granted', async () => {
    const sink = new RecordingSink();
    const pulled: number[] = [];
    const attempt = begin(
      function* () {
        for (let index = 0; index < 4; index += 1) {
          pulled.push(index);
          yield 'x'.repeat(600);
        }
      },
      { sink, call: { windowBytes: 1_000 } },
    );
    await sink.until(({ outputs }) => outputs.length === 2);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(pulled).toEqual([0, 1]);
    attempt.grant(1_300);
    await sink.until(({ outputs }) => outputs.length === 4);
    attempt.grant(1_300);
    expect((await attempt.end).outcome.kind).toBe('completed');
  });

  it('is closed when a yielded promise rejects', async () => {
    let isClosed = false;
    const error = await runAndReadError(function* () {
      try {
        yield Promise.reject(new RangeError('no such page'));
      } finally {
        isClosed = true;
      }
    });
    expect(error).toMatchObject({ code: 'handler_error', message: 'no such page' });
    expect(isClosed).toBe(true);
  });

  it('is closed and fails without a retry if its chunks together are too large', async () => {
    let isClosed = false;
    const error = await runAndReadError(
      function* () {
        try {
          for (;;) yield 'x'.repeat(100);
        } finally {
          isClosed = true;
        }
      },
      { call: { limits: { outputBytes: 1_000, chunkTotalBytes: 500 } } },
    );
    expect(error).toMatchObject({ code: 'output_too_large', retry: 'never' });
    expect(error.message).toContain('500');
    expect(isClosed).toBe(true);
  });

  it('is closed and fails without a retry if it yields a value that is not JSON', async () => {
    const error = await runAndReadError(function* () {
      yield 10n;
    });
    expect(error).toMatchObject({ code: 'output_invalid', retry: 'never' });
  });
});

describe('metrics and progress', () => {
  it('are sent with the next chunk, counters added up, and restart', async () => {
    const sink = new RecordingSink();
    await run(
      function* (_: unknown, { metrics, chunk }: Context) {
        metrics.add('tokens', 2);
        metrics.add('tokens', 3);
        metrics.set('ms', 7);
        yield chunk('a', { own: 1 });
        yield 'b';
      },
      { sink },
    );
    expect(sink.outputs).toEqual(['a', 'b']);
    expect(sink.metrics).toEqual([{ tokens: 5, ms: 7, own: 1 }, {}]);
  });

  it.each<[string, (ctx: Context) => void]>([
    ['ctx.chunk', ({ chunk }) => chunk('a', { bad: Number.NaN })],
    ['metrics.add', ({ metrics }) => metrics.add('bad', Number.POSITIVE_INFINITY)],
    ['metrics.set', ({ metrics }) => metrics.set('part', 1)],
  ])('are refused in the handler’s own stack by %s', async (_, refuse) => {
    const end = await run((__: unknown, ctx: Context) => {
      try {
        refuse(ctx);
        return 'accepted';
      } catch (error) {
        return error instanceof TypeError ? 'TypeError' : 'another error';
      }
    });
    expect(readOutput(end)).toBe('TypeError');
  });

  it('sends the latest progress before the outcome and omits those in between', async () => {
    const sink = new RecordingSink();
    await run(
      (_: unknown, { progress }: Context) => {
        for (let percent = 0; percent <= 100; percent += 1) progress({ percent });
      },
      { sink },
    );
    expect(sink.progressValues).toEqual([{ percent: 0 }, { percent: 100 }]);
  });

  it('refuses progress that is not JSON at the handler’s call', async () => {
    const error = await runAndReadError((_: unknown, { progress }: Context) => progress(() => 1));
    expect(error).toMatchObject({ code: 'handler_error', type: 'NotJsonError' });
  });
});

describe('schemas', () => {
  const input = z.object({ a: z.object({ b: z.number() }), list: z.array(z.string()) });

  it('fail the job before the handler sees it, naming every path', async () => {
    let called = false;
    const handler = {
      input,
      run: () => {
        called = true;
      },
    };
    const error = await runAndReadError(handler, { input: { a: { b: 'x' }, list: [1] } });
    expect(error).toMatchObject({ code: 'input_invalid', retry: 'never' });
    expect(error.message).toMatch(/input\.a\.b: .+; input\.list\[0\]: .+/);
    expect(called).toBe(false);
  });

  it('pass their output to the handler, also if they are asynchronous', async () => {
    const schema = z.object({ n: z.string().transform(async (text) => Number(text)) });
    const handler = { input: schema, run: (job: Job<{ n: number }>) => job.input.n + 1 };
    expect(readOutput(await run(handler, { input: { n: '41' } }))).toBe(42);
  });

  it('may return a thenable', async () => {
    const validate = (value: unknown) => ({
      // biome-ignore lint/suspicious/noThenProperty: that is what is tried.
      then: (resolve: (result: unknown) => void) => resolve({ value: { made: value } }),
    });
    const input = { '~standard': { version: 1, vendor: 'test', validate } };
    const end = await run({ default: (job: Job) => job.input, input }, { input: { a: 1 } });
    expect(readOutput(end)).toEqual({ made: { a: 1 } });
  });

  it('refuse a returned value that does not match', async () => {
    const error = await runAndReadError({ output: z.object({ n: z.number() }), run: () => ({}) });
    expect(error).toMatchObject({ code: 'output_invalid', retry: 'never' });
    expect(error.message).toContain('output.n');
  });

  it('refuse a yielded value that does not match, and keep earlier ones', async () => {
    const sink = new RecordingSink();
    const handler = {
      output: z.number(),
      *run() {
        yield 1;
        yield 'two';
      },
    };
    expect(await runAndReadError(handler, { sink })).toMatchObject({ code: 'output_invalid' });
    expect(sink.outputs).toEqual([1]);
  });
});

describe('a handler that throws', () => {
  it('fails with a code of its own if the device had too little memory', async () => {
    const text = 'CUDA out of memory. Tried to allocate 20.00 GiB';
    const plain = await runAndReadError(() => {
      throw new Error('inference failed', { cause: new Error(text) });
    });
    expect(plain).toMatchObject({ code: 'gpu_out_of_memory', retry: 'default' });
    const final = await runAndReadError(() => {
      throw new NonRetryableError(text);
    });
    expect(final).toMatchObject({ code: 'gpu_out_of_memory', message: text, retry: 'never' });
  });

  it('fails with the error’s message, class and stack and may be retried', async () => {
    class ModelError extends Error {}
    const error = await runAndReadError(() => {
      throw new ModelError('no weights', { cause: new Error('disk') });
    });
    expect(error).toMatchObject({
      code: 'handler_error',
      message: 'no weights',
      type: 'ModelError',
      retry: 'default',
    });
    expect(error.stack).toMatch(/no weights[\s\S]*caused by: Error: disk/);
  });

  it('is not retried after a NonRetryableError', async () => {
    const error = await runAndReadError(async () => {
      throw new NonRetryableError('never');
    });
    expect(error).toMatchObject({ type: 'NonRetryableError', retry: 'never' });
  });

  it('is retried after the wait of a RetryAfterError', async () => {
    const error = await runAndReadError(async () => {
      throw new RetryAfterError(1_500);
    });
    expect(error).toMatchObject({ retry: 'after', retryAfterMs: 1_500 });
  });

  it('fails with a description of a thrown value that is not an error', async () => {
    const error = await runAndReadError(() => Promise.reject({ status: 502 }));
    expect(error.message).toBe('{ status: 502 }');
    expect(error.type).toBeUndefined();
  });

  it('fails with a message of bounded size', async () => {
    const error = await runAndReadError(() => {
      throw new Error('x'.repeat(1_000_000));
    });
    expect(error.message.length).toBeLessThan(10_000);
  });

  it('fails after chunks that it yielded before', async () => {
    const sink = new RecordingSink();
    const error = await runAndReadError(
      async function* () {
        yield 1;
        throw new Error('then this');
      },
      { sink },
    );
    expect(error.message).toBe('then this');
    expect(sink.outputs).toEqual([1]);
  });
});

/** Ends with the reason of its signal, as fetch does. */
function waitForSignal(_: unknown, { signal }: Context): Promise<never> {
  return new Promise((__, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

/** Ends well although it is stopped. */
function finishOnSignal(_: unknown, { signal }: Context): Promise<string> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve('finished')));
}

/** Begins and lets the handler come as far as its first wait. */
async function beginAndWait(handler: Handle) {
  const attempt = begin(handler);
  await new Promise((resolve) => setImmediate(resolve));
  return attempt;
}

describe('a stop', () => {
  it('passes its reason to the handler in the signal', async () => {
    const attempt = await beginAndWait(
      (_: unknown, { signal }: Context) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () =>
            resolve([signal.reason.name, signal.reason.message]),
          );
        }),
    );
    attempt.stop('shutdown');
    expect(readOutput(await attempt.end)).toEqual(['AbortError', 'the worker is shutting down']);
  });

  it.each([
    ['timeout', { kind: 'timed_out', stopped: 'signal', error: { code: 'execution_timeout' } }],
    ['cancelled', { kind: 'cancelled', stopped: 'signal' }],
    ['lost', { kind: 'cancelled', stopped: 'signal' }],
    ['shutdown', { kind: 'released', reason: 'drain' }],
  ] as const)(
    'determines after %s the outcome of a handler that stops',
    async (reason, outcome) => {
      const attempt = await beginAndWait(waitForSignal);
      attempt.stop(reason);
      expect((await attempt.end).outcome).toMatchObject(outcome);
    },
  );

  it.each([
    ['timeout', 'completed'],
    ['cancelled', 'cancelled'],
    ['lost', 'completed'],
    ['shutdown', 'completed'],
  ] as const)('makes after %s a handler that still finishes in time %s', async (reason, kind) => {
    const attempt = await beginAndWait(finishOnSignal);
    attempt.stop(reason);
    expect((await attempt.end).outcome.kind).toBe(kind);
  });

  it('ends a generator that ignores the signal by its return method', async () => {
    const sink = new RecordingSink();
    let isClosed = false;
    const attempt = begin(
      async function* () {
        try {
          for (;;) yield 1;
        } finally {
          isClosed = true;
        }
      },
      { sink, call: { windowBytes: Number.POSITIVE_INFINITY } },
    );
    await sink.until(({ outputs }) => outputs.length > 0);
    attempt.stop('timeout');
    expect((await attempt.end).outcome).toMatchObject({ kind: 'timed_out', stopped: 'return' });
    expect(isClosed).toBe(true);
  });

  it('reaches a generator that is paused for lack of credit', async () => {
    const sink = new RecordingSink();
    const attempt = begin(
      function* () {
        for (;;) yield 'x'.repeat(100);
      },
      { sink, call: { windowBytes: 10 } },
    );
    await sink.until(({ outputs }) => outputs.length === 1);
    attempt.stop('cancelled');
    expect((await attempt.end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'return' });
    expect(sink.outputs).toHaveLength(1);
  });

  it('skips the handler if it has not started', async () => {
    let called = false;
    const attempt = begin(() => {
      called = true;
    });
    attempt.stop('shutdown');
    expect((await attempt.end).outcome).toEqual({ kind: 'released', reason: 'drain' });
    expect(called).toBe(false);
  });

  it('counts by its first reason', async () => {
    const attempt = await beginAndWait(waitForSignal);
    attempt.stop('shutdown');
    attempt.stop('cancelled');
    expect((await attempt.end).outcome.kind).toBe('released');
  });

  it('is not needed to time out an attempt that ends after its timeout', async () => {
    const clock = new ManualClock();
    let finish: (value: unknown) => void = () => undefined;
    const attempt = begin(
      () =>
        new Promise((resolve) => {
          finish = resolve;
        }),
      { call: { clock, timeoutMs: 1_000 } },
    );
    await clock.advance(1_001);
    finish('late');
    const end = await attempt.end;
    expect(end).toMatchObject({ outcome: { kind: 'timed_out', executionMs: 1_001 } });
    expect(end.output).toBeUndefined();
  });
});

describe('work that outlives its job', () => {
  it('does not keep the input in memory', async () => {
    setFlagsFromString('--expose-gc');
    const collect: () => void = runInNewContext('gc');
    let timer: NodeJS.Timeout | undefined;
    const lasting = () => {
      timer = setInterval(() => {}, 60_000);
    };
    let bytes: Uint8Array | undefined = new Uint8Array(Buffer.from(`{"pad":"${'x'.repeat(1e6)}"}`));
    const input = new WeakRef(bytes);
    await run(lasting, { call: { input: bytes } });
    bytes = undefined;
    for (let turn = 0; turn < 5; turn++) {
      await new Promise((resolve) => setImmediate(resolve));
      collect();
    }
    expect(input.deref()).toBeUndefined();
    clearInterval(timer);
  });
});

describe('the context', () => {
  it('contains devices, attempt and deadline', async () => {
    const clock = new ManualClock();
    const end = await run(
      (_: unknown, { devices, attempt, deadline }: Context) => ({ devices, attempt, deadline }),
      { call: { clock, timeoutMs: 5_000 } },
    );
    expect(readOutput(end)).toEqual({ devices: [cpu], attempt: 2, deadline: clock.now() + 5_000 });
  });

  it('has a log whose lines name job and attempt and are sent before the end', async () => {
    const sink = new RecordingSink();
    await run((_: unknown, { log }: Context) => log.warn({ tokens: 3 }, 'said'), { sink });
    expect(sink.logLines).toMatchObject([
      { level: 40, job: 'job-1', attempt: 2, tokens: 3, msg: 'said' },
    ]);
  });
});
