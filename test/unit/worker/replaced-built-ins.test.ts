// A job that replaces built-ins breaks at most the jobs of its own thread: real handlers in real threads.
import { describe, expect, it } from 'vitest';
import { readPacket } from '../../../src/worker/execution/thread-messages.ts';
import { otherValue, replacingHandler } from '../../support/replaced-built-ins.ts';
import { readOutput } from '../../support/workers/leases.ts';
import { startThreads, writeHandler } from '../../support/workers/thread-script.ts';

/** Lines of a thread without its JSON.stringify are not JSON. */
const logDestination = { write: () => undefined };

describe('a job that replaces built-ins', () => {
  // Every object that handlers can reach: test/soak/replaced-built-ins.test.ts.
  it.each([
    'JSON.stringify = fake',
    'Array.prototype.map = Array.prototype.push = fake',
    'Array.prototype[Symbol.iterator] = Map.prototype.get = boom',
    'Object.prototype.toJSON = fake',
    'Promise.prototype.then = fake',
  ])('leaves other threads and the next thread as they were: %s', async (code) => {
    const handlerPath = await writeHandler(replacingHandler);
    const { begin } = await startThreads({ handlerPath, threads: 2, logDestination });
    const replacing = begin({ code }, 1_000);
    const beside = begin({ value: otherValue });
    await replacing.end;
    for (const { end } of [beside, begin({ value: otherValue }), begin({ value: otherValue })]) {
      expect(readOutput(await end)).toEqual(otherValue);
    }
  });

  it('fails if its thread sends an invalid message, and the thread is replaced', async () => {
    const shared = replacingHandler.replace("isolation: 'job'", 'concurrency: 1');
    const { begin } = await startThreads({ handlerPath: await writeHandler(shared) });
    expect((await begin({ code: 'Math.round = fake' }).end).outcome).toMatchObject({
      kind: 'failed',
      error: { code: 'thread_crashed', message: expect.stringMatching(/sent an invalid message/) },
    });
    expect(readOutput(await begin({ count: true }).end)).toEqual({ jobs: 1, loads: 1 });
  });

  it('leaves the clock and the timers of its thread as they were', async () => {
    const shared = replacingHandler.replace("isolation: 'job'", 'concurrency: 1');
    const { begin } = await startThreads({ handlerPath: await writeHandler(shared) });
    const code = 'performance.now = setTimeout = setImmediate = fake';
    expect(readOutput(await begin({ code }, 5_000).end)).toBe('done');
    expect(readOutput(await begin({ value: otherValue }, 5_000).end)).toEqual(otherValue);
  });
});

describe('a message of a thread', () => {
  const failed = {
    ...{ kind: 'failed', executionMs: 1, retry: 'default' },
    error: { code: 'handler_error', message: 'no' },
  };
  const started = { kind: 'started', size: 1, of: 2, waitMs: 0 };
  const isAccepted = (message: object) =>
    readPacket({ messages: [message], payloads: [undefined] }) !== undefined;

  it.each([
    { kind: 'loaded', config: {} },
    { kind: 'end', number: 1, outcome: failed, contextLoss: 'lost' },
    { kind: 'batch', event: started },
    { kind: 'batch', event: { kind: 'split', size: 2 } },
    { kind: 'exit', code: -1, number: undefined, because: 'exit', thrown: undefined },
  ])('is accepted: %j', (message) => {
    expect(isAccepted(message)).toBe(true);
  });

  it.each([
    { kind: 'loaded' },
    { kind: 'end', number: 1, outcome: { ...failed, kind: 'other' } },
    { kind: 'end', number: 1, outcome: { ...failed, error: { ...failed.error, stack: 1 } } },
    { kind: 'end', number: 1, outcome: { ...failed, executionMs: Number.NaN } },
    { kind: 'end', number: 1, outcome: failed, contextLoss: {} },
    { kind: 'end', outcome: failed },
    { kind: 'held', number: 1, isHeld: 'yes' },
    { kind: 'loaded', config: { timeoutMs: '1 s' } },
    { kind: 'exit', code: 0, because: 'exit', thrown: { message: 1 } },
    { kind: 'other' },
    { kind: 'batch' },
    { kind: 'batch', event: { ...started, waitMs: Number.NaN } },
    { kind: 'batch', event: { kind: 'other', size: 1 } },
  ])('is refused if the worker would fail with it: %j', (message) => {
    expect(isAccepted(message)).toBe(false);
  });
});

describe("config.isolation 'job'", () => {
  it('gives each job a thread of its own, with a setup of its own', async () => {
    const handlerPath = await writeHandler(replacingHandler);
    const { begin, executor, workerLog } = await startThreads({ handlerPath, threads: 2 });
    expect(executor.slots).toBe(2);
    const ends = await Promise.all([1, 2, 3, 4].map(() => begin({ count: true }).end));
    expect(ends.map(readOutput)).toEqual(Array(4).fill({ jobs: 1, loads: 1 }));
    await executor.stop();
    expect(workerLog.filter(({ msg }) => msg === 'teardown').length).toBeGreaterThanOrEqual(4);
  });

  it("takes precedence over the worker's number of jobs per thread", async () => {
    const handlerPath = await writeHandler(replacingHandler);
    const { executor } = await startThreads({ handlerPath, concurrency: 8 });
    expect(executor.slots).toBe(1);
  });
});
