// Batch handlers in the test's own thread: when batches start, what each job gets, and who pays for an
// error. The clock is the test's.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import type { BatchEvent } from '../../../../src/handler/batch/settings.ts';
import type { BatchContext, BatchJob } from '../../../../src/handler/define.ts';
import { readHandler } from '../../../../src/handler/loading/load.ts';
import { NonRetryableError, RetryAfterError } from '../../../../src/handler/thrown.ts';
import { ModelProcessError } from '../../../../src/process/calls.ts';
import { InlineExecutor } from '../../../../src/worker/execution/inline-executor.ts';
import { RecordingSink } from '../../../support/network/recording-sink.ts';
import { fc } from '../../../support/properties.ts';
import { until } from '../../../support/until.ts';
import { cpu, makeLease, readOutput } from '../../../support/workers/leases.ts';

type Run = (jobs: readonly BatchJob<{ n: number; key?: string }>[], ctx: BatchContext) => unknown;

interface Setup {
  batch?: Record<string, unknown>;
  input?: unknown;
  output?: unknown;
  graceMs?: number;
}

async function start(run: Run, { batch, graceMs = 2_000, ...members }: Setup = {}) {
  const clock = new ManualClock(0);
  const settings = { maxSize: 4, maxWaitMs: 10, ...batch };
  const handler = readHandler({ default: { run, batch: settings, ...members } }, 'handler');
  const logged: string[] = [];
  const write = (lines: Uint8Array) => logged.push(Buffer.from(lines).toString());
  const logDestination = { write };
  const executor = new InlineExecutor({ handler, devices: [cpu], clock, graceMs, logDestination });
  await executor.start();
  const events: BatchEvent[] = [];
  executor.onBatch((event) => events.push(event));
  const begin = (input: unknown, { timeoutMs = 60_000, solo = false } = {}) => {
    const sink = new RecordingSink();
    const lease = { ...makeLease(input), solo };
    const execution = executor.execute(lease, timeoutMs, sink);
    return { lease, sink, end: execution.end, stop: execution.stop.bind(execution), execution };
  };
  const beginAll = (count: number) => Array.from({ length: count }, (_, n) => begin({ n }));
  return { clock, executor, begin, beginAll, events, logged };
}

const ends = async (jobs: readonly { end: Promise<{ output: Uint8Array | undefined }> }[]) =>
  (await Promise.all(jobs.map(({ end }) => end))).map(readOutput);

const outcomes = async (jobs: readonly { end: Promise<{ outcome: { kind: string } }> }[]) =>
  (await Promise.all(jobs.map(({ end }) => end))).map(({ outcome }) => outcome);

const square: Run = (jobs) => jobs.map(({ input }) => input.n ** 2);

/** Squares, and remembers the numbers of each call. */
function record(calls: number[][], act: Run = square): Run {
  return (jobs, ctx) => {
    calls.push(jobs.map(({ input }) => input.n));
    return act(jobs, ctx);
  };
}

describe('when a batch starts', () => {
  it('starts at once when it is full', async () => {
    const calls: number[][] = [];
    const { beginAll, clock, events } = await start(record(calls));
    const jobs = beginAll(4);
    await clock.advance(0);
    expect(calls).toEqual([[0, 1, 2, 3]]);
    expect(await ends(jobs)).toEqual([0, 1, 4, 9]);
    expect(events).toEqual([{ kind: 'started', size: 4, of: 4, waitMs: 0 }]);
  });

  it('starts when its first job has waited maxWaitMs', async () => {
    const calls: number[][] = [];
    const { begin, clock, events } = await start(record(calls));
    const first = begin({ n: 2 });
    await clock.advance(6);
    const second = begin({ n: 3 });
    await clock.advance(3);
    expect(calls).toEqual([]);
    await clock.advance(1);
    expect(await ends([first, second])).toEqual([4, 9]);
    expect(events).toEqual([{ kind: 'started', size: 2, of: 4, waitMs: 10 }]);
  });

  it('starts a job that must run alone at once and alone', async () => {
    const calls: number[][] = [];
    const { begin, clock } = await start(record(calls));
    begin({ n: 1 });
    const solo = begin({ n: 5 }, { solo: true });
    await clock.advance(0);
    expect(await ends([solo])).toEqual([25]);
    expect(calls).toEqual([[5]]);
  });

  it('keeps jobs with different keys apart, and serves the oldest first', async () => {
    const calls: number[][] = [];
    const key = ({ key: name }: { key: string }) => name;
    const { begin, clock } = await start(record(calls), { batch: { key, maxSize: 5 } });
    const jobs = ['a', 'b', 'a', 'b', 'c'].map((name, n) => begin({ n, key: name }));
    await clock.advance(10);
    expect(calls).toEqual([[0, 2], [1, 3], [4]]);
    await ends(jobs);
  });

  it('runs at most maxInFlight batches, and fills the next ones meanwhile', async () => {
    const calls: number[][] = [];
    const gates: (() => void)[] = [];
    const run = record(calls, async (jobs) => {
      await new Promise<void>((resolve) => gates.push(resolve));
      return jobs.map(() => null);
    });
    const batch = { maxSize: 2, maxInFlight: 2 };
    const { beginAll, clock, executor } = await start(run, { batch });
    expect([executor.slots, executor.free]).toEqual([4, 4]);
    const jobs = beginAll(7);
    await clock.advance(20);
    expect(calls).toEqual([
      [0, 1],
      [2, 3],
    ]);
    expect(executor.free).toBe(0);
    while (gates.length > 0) {
      gates.shift()?.();
      await clock.advance(0);
    }
    await clock.advance(10);
    for (const open of gates) open();
    await ends(jobs);
    expect(calls).toEqual([[0, 1], [2, 3], [4, 5], [6]]);
  });

  it('does not let an invalid input or a failing key into a batch', async () => {
    const calls: number[][] = [];
    const validate = (value: unknown) =>
      Object(value).n === 1 ? { issues: [{ message: 'not one' }] } : { value };
    const input = { '~standard': { version: 1, vendor: 'test', validate } };
    const key = ({ n }: { n: number }) => (n === 2 ? 7 : n === 3 ? 'k'.repeat(257) : '');
    const { beginAll, clock } = await start(record(calls), { input, batch: { key, maxSize: 5 } });
    const jobs = beginAll(5);
    await clock.advance(10);
    expect(calls).toEqual([[0, 4]]);
    expect(await outcomes(jobs)).toMatchObject([
      { kind: 'completed' },
      { kind: 'failed', error: { code: 'input_invalid', message: 'input: not one' } },
      { kind: 'failed', error: { message: 'batch.key must return a string, got a number' } },
      { kind: 'failed', error: { message: 'batch.key returned 257 characters; the limit is 256' } },
      { kind: 'completed' },
    ]);
  });
});

describe('free slots', () => {
  it('are those of the incomplete batch, until it starts', async () => {
    const { begin, clock, executor } = await start(() => new Promise(() => {}));
    expect([executor.free, executor.freeForMs]).toEqual([4, undefined]);
    begin({ n: 0 });
    await clock.advance(4);
    expect([executor.free, executor.freeForMs]).toEqual([3, 6]);
    await clock.advance(6);
    expect([executor.free, executor.freeForMs]).toEqual([0, undefined]);
  });

  it('come back when a waiting job leaves, and the batch waits from its next job on', async () => {
    const calls: number[][] = [];
    const { begin, clock, executor } = await start(record(calls));
    const first = begin({ n: 0 });
    await clock.advance(5);
    const second = begin({ n: 1 });
    await clock.advance(0);
    first.stop('cancelled');
    await clock.advance(0);
    expect([executor.free, executor.freeForMs, executor.waitingForBatch]).toEqual([3, 10, 1]);
    expect(await outcomes([first])).toMatchObject([{ kind: 'cancelled' }]);
    await clock.advance(9);
    expect(calls).toEqual([]);
    await clock.advance(1);
    expect(await ends([second])).toEqual([1]);
  });
});

describe('outputs', () => {
  it.each([
    [() => [1], 'the batch function returned 1 outputs for 2 jobs'],
    [() => [1, 2, 3], 'the batch function returned 3 outputs for 2 jobs'],
    [
      () => ({ a: 1 }),
      'the batch function returned an object; return an array of 2 outputs, one for each job',
    ],
    [
      async function* () {
        yield { job: 2, output: 'x' };
      },
      'the batch function yielded an output for a wrong job: index 2, but the batch has 2 jobs, 0 to 1',
    ],
    [
      async function* () {
        yield { job: { id: 'other' }, output: 'x' };
      },
      'the batch function yielded an output for a wrong job: job other is not one of the 2 jobs of this batch',
    ],
    [
      async function* () {
        yield 'x';
      },
      'the batch function yielded a string; yield { job, output }',
    ],
    [
      async function* () {
        yield { job: 0, output: 'x' };
        return [1, 2, 3];
      },
      'the batch function returned 3 outputs for 2 jobs',
    ],
  ])(
    'are output_invalid with the numbers (%#) if they do not fit the jobs',
    async (run, message) => {
      const { beginAll, clock } = await start(run);
      const jobs = beginAll(2);
      await clock.advance(10);
      const expected = {
        kind: 'failed',
        retry: 'never',
        error: { code: 'output_invalid', message },
      };
      expect(await outcomes(jobs)).toMatchObject([expected, expected]);
    },
  );

  it('are checked for each job alone', async () => {
    const validate = (value: unknown) =>
      value === 1 ? { issues: [{ message: 'not one' }] } : { value };
    const output = { '~standard': { version: 1, vendor: 'test', validate } };
    const { beginAll, clock } = await start(square, { output });
    const jobs = beginAll(3);
    await clock.advance(10);
    const kinds = (await outcomes(jobs)).map(({ kind }) => kind);
    expect(kinds).toEqual(['completed', 'failed', 'completed']);
  });

  it('are null for a job without one, and never a stream', async () => {
    const { beginAll, clock } = await start(() => [undefined, (async function* () {})()]);
    const jobs = beginAll(2);
    await clock.advance(10);
    expect(readOutput((await jobs[0]?.end) ?? { output: undefined })).toBe(null);
    expect((await outcomes(jobs))[1]).toMatchObject({ error: { code: 'output_invalid' } });
  });
});

describe('a batch that streams', () => {
  const letters: Run = async function* (jobs) {
    for (let turn = 0; turn < 3; turn++) {
      for (const job of jobs) {
        if (turn < job.input.n) yield { job, output: `${job.input.n}${turn}`, metrics: { turn } };
      }
    }
  };

  it('gives each job its own chunks with their metrics', async () => {
    const { beginAll, clock } = await start(letters);
    const jobs = beginAll(4);
    await clock.advance(10);
    expect((await outcomes(jobs)).map((outcome) => outcome)).toMatchObject(
      Array(4).fill({ kind: 'completed', output: 'chunks' }),
    );
    expect(jobs.map(({ sink }) => sink.outputs)).toEqual([
      [],
      ['10'],
      ['20', '21'],
      ['30', '31', '32'],
    ]);
  });

  it('fails only the job whose metrics are wrong', async () => {
    const { beginAll, clock } = await start(async function* (jobs) {
      for (const job of jobs) yield { job, output: 1, metrics: { n: job.input.n || Number.NaN } };
    });
    const jobs = beginAll(3);
    await clock.advance(10);
    const kinds = (await outcomes(jobs)).map(({ kind }) => kind);
    expect(kinds).toEqual(['failed', 'completed', 'completed']);
  });

  it('waits for a job whose receiver is slow', async () => {
    const seen: number[] = [];
    const run: Run = async function* () {
      for (let turn = 0; turn < 400; turn++) {
        seen.push(turn);
        yield { job: 0, output: 'x'.repeat(100_000) };
      }
    };
    const { begin, clock } = await start(run);
    const job = begin({ n: 0 });
    await clock.advance(10);
    await job.sink.until(({ chunkSizes }) => chunkSizes.length > 40);
    await clock.advance(0);
    expect(seen.length).toBeLessThan(50);
    job.stop('cancelled');
    expect((await outcomes([job]))[0]).toMatchObject({ kind: 'cancelled' });
  });

  it.each(['neighbour', 'suspect'] as const)(
    'releases all jobs at once if it throws the error of a %s',
    async (blame) => {
      const calls: number[][] = [];
      const run = record(calls, () => {
        throw new ModelProcessError('the model does not start', blame);
      });
      const { beginAll, clock } = await start(run);
      const jobs = beginAll(4);
      await clock.advance(10);
      expect(await outcomes(jobs)).toMatchObject(
        Array(4).fill({ kind: 'released', reason: blame }),
      );
      expect(calls).toEqual([[0, 1, 2, 3]]);
    },
  );

  it('releases all jobs as suspects if it loses the context of the device, and runs nothing more', async () => {
    const calls: number[][] = [];
    const run = record(calls, () => {
      throw new Error('CUDA error: device-side assert triggered');
    });
    const { beginAll, clock } = await start(run);
    const jobs = beginAll(4);
    await clock.advance(10);
    expect(await outcomes(jobs)).toMatchObject(
      Array(4).fill({ kind: 'released', reason: 'suspect' }),
    );
    expect(calls).toEqual([[0, 1, 2, 3]]);
    const ends = await Promise.all(jobs.map(({ end }) => end));
    expect(ends.map(({ contextLoss }) => contextLoss)).toEqual(
      Array(4).fill('CUDA error: device-side assert'),
    );
  });

  it('postpones all jobs at once if it throws a RetryAfterError', async () => {
    const calls: number[][] = [];
    const run = record(calls, () => {
      throw new RetryAfterError(30_000, 'the model server is busy');
    });
    const { beginAll, clock } = await start(run);
    const jobs = beginAll(4);
    await clock.advance(10);
    expect(await outcomes(jobs)).toMatchObject(
      Array(4).fill({ kind: 'failed', retry: 'after', retryAfterMs: 30_000 }),
    );
    expect(calls).toEqual([[0, 1, 2, 3]]);
  });

  it('releases the jobs that have streamed when it throws, and runs the others again', async () => {
    const calls: number[][] = [];
    const run = record(calls, async function* (jobs) {
      for (const job of jobs) {
        if (job.input.n < 2) yield { job, output: 'a' };
      }
      if (jobs.length === 4) throw new Error('broken');
      return jobs.map(() => 'whole');
    });
    const { beginAll, clock } = await start(run);
    const jobs = beginAll(4);
    await clock.advance(10);
    expect(await outcomes(jobs)).toMatchObject([
      { kind: 'released', reason: 'neighbour' },
      { kind: 'released', reason: 'neighbour' },
      { kind: 'completed' },
      { kind: 'completed' },
    ]);
    expect(calls).toEqual([[0, 1, 2, 3], [2], [3]]);
  });

  it('fails a job that streamed alone and threw', async () => {
    const { begin, clock } = await start(async function* () {
      yield { job: 0, output: 'a' };
      throw new Error('broken');
    });
    const job = begin({ n: 0 });
    await clock.advance(10);
    expect((await outcomes([job]))[0]).toMatchObject({
      kind: 'failed',
      error: { code: 'handler_error', message: 'broken' },
    });
    expect(job.sink.outputs).toEqual(['a']);
  });
});

describe('one job of a batch', () => {
  /** Ends when the test says so, or when its signal aborts. */
  function waiting() {
    const open = Promise.withResolvers<void>();
    const contexts: BatchContext[] = [];
    const signals: AbortSignal[] = [];
    const run: Run = async (jobs, ctx) => {
      contexts.push(ctx);
      signals.push(...jobs.map(({ signal }) => signal));
      await Promise.race([
        open.promise,
        new Promise((resolve) => ctx.signal.addEventListener('abort', resolve)),
      ]);
      ctx.signal.throwIfAborted();
      return jobs.map(({ input }) => input.n);
    };
    return { run, open: open.resolve, contexts, signals };
  }

  it.each(['cancelled', 'timeout', 'lost'] as const)(
    'leaves it alone when it is stopped: %s',
    async (reason) => {
      const { run, open, signals, contexts } = waiting();
      const { beginAll, clock } = await start(run);
      const jobs = beginAll(3);
      await clock.advance(10);
      jobs[1]?.stop(reason);
      await jobs[1]?.end;
      expect(signals.map(({ aborted }) => aborted)).toEqual([false, true, false]);
      expect(contexts[0]?.signal.aborted).toBe(false);
      open();
      expect(await ends(jobs)).toEqual([0, undefined, 2]);
    },
  );

  it('stays at a shutdown, which stops all of them: an output that comes in time counts', async () => {
    const gate = Promise.withResolvers<void>();
    const signals: AbortSignal[] = [];
    const { beginAll, clock } = await start(async (jobs, ctx) => {
      signals.push(ctx.signal);
      await gate.promise;
      return jobs.map(({ input }) => input.n);
    });
    const jobs = beginAll(3);
    await clock.advance(10);
    jobs[0]?.stop('shutdown');
    jobs[1]?.stop('shutdown');
    expect(signals[0]?.aborted).toBe(false);
    jobs[2]?.stop('shutdown');
    expect(signals[0]?.aborted).toBe(true);
    await clock.advance(1_000);
    gate.resolve();
    expect(await ends(jobs)).toEqual([0, 1, 2]);
  });

  it('fails alone at ctx.fail, and its output is ignored', async () => {
    const { beginAll, clock } = await start((jobs, { fail }) => {
      fail(jobs[1] ?? 0, new NonRetryableError('not this one'));
      fail(2, new Error('nor this one'));
      return jobs.map(({ input }) => input.n);
    });
    const jobs = beginAll(4);
    await clock.advance(10);
    expect(await outcomes(jobs)).toMatchObject([
      { kind: 'completed' },
      { kind: 'failed', retry: 'never', error: { message: 'not this one' } },
      { kind: 'failed', retry: 'default', error: { message: 'nor this one' } },
      { kind: 'completed' },
    ]);
  });

  it('cannot be failed if it is not in the batch', async () => {
    const { begin, clock } = await start((_, ctx) => {
      ctx.fail(1, new Error('x'));
      return [];
    });
    const job = begin({ n: 0 });
    await clock.advance(10);
    expect((await outcomes([job]))[0]).toMatchObject({
      error: { message: 'ctx.fail: index 1, but the batch has 1 jobs, 0 to 0' },
    });
  });

  it('times out alone, counted from its arrival', async () => {
    const { run, open } = waiting();
    const { begin, clock } = await start(run);
    const jobs = [begin({ n: 0 }, { timeoutMs: 30 }), begin({ n: 1 })];
    await clock.advance(30);
    expect(await outcomes(jobs.slice(0, 1))).toMatchObject([{ kind: 'timed_out' }]);
    open();
    expect(await ends(jobs.slice(1))).toEqual([1]);
  });

  it('stays, as the last one, until the function has ended', async () => {
    const { run, contexts } = waiting();
    const { beginAll, clock, executor } = await start(run);
    const jobs = beginAll(2);
    await clock.advance(10);
    for (const job of jobs) job.stop('cancelled');
    expect(contexts[0]?.signal.aborted).toBe(true);
    expect(await outcomes(jobs)).toMatchObject([{ kind: 'cancelled' }, { kind: 'cancelled' }]);
    await clock.advance(0);
    expect(executor.free).toBe(4);
  });

  it('is killed, as the last one, if the function hangs; its place is free again', async () => {
    const { beginAll, clock, executor } = await start(() => new Promise(() => {}), { graceMs: 50 });
    const jobs = beginAll(2);
    await clock.advance(10);
    jobs[0]?.stop('cancelled');
    jobs[1]?.stop('timeout');
    await clock.advance(49);
    expect(executor.free).toBe(0);
    await clock.advance(1);
    expect(await outcomes(jobs)).toMatchObject([
      { kind: 'cancelled', stopped: 'signal' },
      { kind: 'timed_out', stopped: 'thread' },
    ]);
    expect(executor.free).toBe(4);
  });

  it.each([1, 2])('ends the generator when all %i have left, without an output', async (count) => {
    let isReturned = false;
    const { beginAll, clock } = await start(async function* () {
      try {
        for (;;) {
          yield { job: 0, output: 'a' };
          await new Promise((resolve) => setImmediate(resolve));
        }
      } finally {
        isReturned = true;
      }
    });
    const jobs = beginAll(count);
    await clock.advance(10);
    for (const job of jobs) job.stop('shutdown');
    expect(await outcomes(jobs)).toMatchObject(Array(count).fill({ kind: 'released' }));
    expect(isReturned).toBe(true);
  });
});

describe('a batch that throws', () => {
  const refuse =
    (culprits: readonly number[]): Run =>
    (jobs) => {
      const culprit = jobs.find(({ input }) => culprits.includes(input.n));
      if (culprit) throw new Error(`cannot do ${culprit.input.n}`);
      return jobs.map(({ input }) => input.n);
    };

  it('is split until the culprit runs alone', async () => {
    const calls: number[][] = [];
    const run = record(calls, refuse([2]));
    const { beginAll, clock, events } = await start(run, { batch: { maxSize: 8 } });
    const jobs = beginAll(8);
    await clock.advance(10);
    expect(await ends(jobs)).toEqual([0, 1, undefined, 3, 4, 5, 6, 7]);
    expect((await outcomes(jobs))[2]).toMatchObject({
      kind: 'failed',
      retry: 'default',
      error: { code: 'handler_error', message: 'cannot do 2' },
    });
    expect(calls).toEqual([
      [0, 1, 2, 3, 4, 5, 6, 7],
      [0, 1, 2, 3],
      [0, 1],
      [2, 3],
      [2],
      [3],
      [4, 5, 6, 7],
    ]);
    expect(events.map(({ kind }) => kind)).toEqual([
      'started',
      'split',
      'split',
      'split',
      'failed',
    ]);
  });

  it('fails exactly the culprits, whoever they are and whoever is cancelled, in 2n − 1 runs', async () => {
    const roles = fc.array(fc.constantFrom('good', 'bad', 'cancelled'), {
      minLength: 1,
      maxLength: 16,
    });
    await fc.assert(
      fc.asyncProperty(roles, async (all) => {
        const calls: number[][] = [];
        const culprits = all.flatMap((role, n) => (role === 'bad' ? [n] : []));
        const run = record(calls, async (jobs, ctx) => {
          await undefined;
          return refuse(culprits)(jobs, ctx);
        });
        const { beginAll, clock } = await start(run, { batch: { maxSize: 16 } });
        const jobs = beginAll(all.length);
        await clock.advance(9);
        for (const [n, role] of all.entries()) if (role === 'cancelled') jobs[n]?.stop('cancelled');
        await clock.advance(1);
        const expected = { good: 'completed', bad: 'failed', cancelled: 'cancelled' };
        const kinds = (await outcomes(jobs)).map(({ kind }) => kind);
        expect(kinds).toEqual(all.map((role) => expected[role]));
        expect(calls.length).toBeLessThanOrEqual(Math.max(1, 2 * all.length - 1));
      }),
      { numRuns: 60 },
    );
  });

  it('does not run a job again that was stopped meanwhile', async () => {
    const calls: number[][] = [];
    const gate = Promise.withResolvers<void>();
    const run = record(calls, async (jobs, ctx) => {
      if (jobs.length === 2) await gate.promise;
      return refuse([0])(jobs, ctx);
    });
    const { beginAll, clock } = await start(run);
    const jobs = beginAll(4);
    await clock.advance(0);
    jobs[2]?.stop('cancelled');
    jobs[3]?.stop('cancelled');
    expect(await outcomes(jobs.slice(2))).toMatchObject([
      { kind: 'cancelled' },
      { kind: 'cancelled' },
    ]);
    gate.resolve();
    expect(await ends(jobs)).toEqual([undefined, 1, undefined, undefined]);
    expect(calls).toEqual([[0, 1, 2, 3], [0, 1], [0], [1]]);
  });
});

describe('a device without memory', () => {
  it('lowers the size of batches, logs it once, and recovers', async () => {
    const sizes: number[] = [];
    let memory = 3;
    const { beginAll, clock, executor, logged } = await start(
      (jobs) => {
        sizes.push(jobs.length);
        if (jobs.length > memory) throw new Error('CUDA out of memory. Tried to allocate 2.00 GiB');
        return jobs.map(() => 'done');
      },
      { batch: { maxSize: 8 } },
    );
    expect(await ends(await advanced(beginAll(8), clock))).toEqual(Array(8).fill('done'));
    expect(sizes).toEqual([8, 4, 2, 2, 4, 2, 2]);
    expect(executor.free).toBe(2);
    sizes.length = 0;
    await ends(await advanced(beginAll(4), clock));
    expect(sizes).toEqual([2, 2]);
    memory = 8;
    for (let batch = 0; batch < 2_000 && executor.free < 8; batch++) {
      await ends(await advanced(beginAll(executor.free), clock));
    }
    expect(executor.free).toBe(8);
    await until(() => logged.join('').includes('batches may have 8 jobs again'));
    const lines = logged
      .join('')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).msg);
    expect(lines).toEqual([
      'a batch of 8 jobs ran out of device memory; batches have at most 4 jobs for now',
      'batches may have 8 jobs again',
    ]);
  });

  it('fails a job that does not fit alone', async () => {
    const { begin, clock, executor } = await start(() => {
      throw new Error('CUDA_ERROR_OUT_OF_MEMORY');
    });
    const job = begin({ n: 0 });
    await clock.advance(10);
    expect((await outcomes([job]))[0]).toMatchObject({ kind: 'failed' });
    expect(executor.free).toBe(4);
  });

  async function advanced<Jobs>(jobs: Jobs, clock: ManualClock): Promise<Jobs> {
    await clock.advance(10);
    return jobs;
  }
});
