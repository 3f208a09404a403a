// What a network, a platform and a process can do to a job, ordered in the harness: each fault has
// its effect, and the job has one end all the same.
import { afterEach, describe, expect, it } from 'vitest';
import type { Context, Job } from '../../../src/index.ts';
import { createHarness, type Harness, type LinkCall } from '../../../src/testing.ts';

const open: Harness[] = [];
/** Longer than a take waits, a renewal is waited for, and a lease lasts. */
const ALL_PATIENCE_MS = 400_000;

/** How often each job's handler has begun, by the name in its input. */
let runs: Record<string, number> = {};
/** Why handlers were told to stop, with the names of their jobs. */
let stops: string[] = [];
/** Handlers that wait go on when it resolves. */
let gate = Promise.withResolvers<void>();

afterEach(async () => {
  gate.resolve();
  await Promise.all(open.splice(0).map((harness) => harness.close()));
  runs = {};
  stops = [];
  gate = Promise.withResolvers<void>();
});

type Input = { name: string; waits?: boolean };

async function* count(job: Job<Input>, { attempt, signal }: Context) {
  const { name, waits } = job.input;
  runs[name] = (runs[name] ?? 0) + 1;
  yield 1;
  if (waits) {
    await Promise.race([
      gate.promise,
      new Promise((_, reject) => {
        signal.addEventListener('abort', () => {
          stops.push(`${name}: ${signal.reason.reason}`);
          reject(signal.reason);
        });
      }),
    ]);
  }
  yield 2;
  return attempt;
}

async function start(options: Partial<Parameters<typeof createHarness>[0]> = {}) {
  const harness = await createHarness({ handler: count, clock: 'manual', ...options });
  open.push(harness);
  return harness;
}

/** Moves time on in small steps until the condition holds. */
async function advanceUntil(harness: Harness, condition: () => boolean | Promise<boolean>) {
  for (let passedMs = 0; passedMs < ALL_PATIENCE_MS; passedMs += 500) {
    await harness.advance(0);
    if (await condition()) return;
    await harness.advance(500);
  }
  throw new Error('it did not come to that');
}

/** A job that holds until the gate opens; it has begun. */
async function hold(harness: Harness, name = 'held') {
  const job = await harness.submit({ name, waits: true });
  await advanceUntil(harness, () => runs[name] === 1);
  return job;
}

async function waitForEnd(harness: Harness, job: Awaited<ReturnType<typeof hold>>) {
  const ended = ['COMPLETED', 'FAILED', 'TIMED_OUT', 'CANCELLED'];
  await advanceUntil(harness, async () => ended.includes((await job.record()).status));
  return job.record();
}

const ONCE = { status: 'COMPLETED', attempt: 1, output: 1 };

describe.each(['request', 'answer'] as const)('a call whose %s is lost', (direction) => {
  const drop = (harness: Harness, call: LinkCall) =>
    direction === 'request' ? harness.dropNextRequest(call) : harness.dropNextAnswer(call);

  it('is repeated by a worker that takes, and the job has one attempt', async () => {
    const harness = await start();
    await hold(harness, 'first');
    drop(harness, 'take');
    // By the take that is open already.
    await hold(harness, 'second');
    const third = await harness.submit({ name: 'third' });
    await harness.advance(0);
    const status = direction === 'request' ? 'IN_QUEUE' : 'IN_PROGRESS';
    expect(await third.record()).toMatchObject({ status });
    expect(runs['third']).toBeUndefined();
    expect(await waitForEnd(harness, third)).toMatchObject(ONCE);
  });

  it('is repeated by a worker, which learns of a cancel a little later', async () => {
    const harness = await start();
    const job = await hold(harness);
    await harness.advance(1_000);
    drop(harness, 'renew');
    await harness.advance(4_000);
    await job.cancel();
    await harness.advance(0);
    expect(stops).toEqual([]);
    await advanceUntil(harness, () => stops.length > 0);
    expect(stops).toEqual(['held: cancelled']);
  });

  it('is repeated by a worker that reports, and the result counts once', async () => {
    const harness = await start();
    const job = await hold(harness);
    drop(harness, 'report');
    gate.resolve();
    await harness.advance(0);
    const status = direction === 'request' ? 'IN_PROGRESS' : 'COMPLETED';
    expect(await job.record()).toMatchObject({ status });
    expect(await waitForEnd(harness, job)).toMatchObject(ONCE);
    const chunks = await Array.fromAsync(job.chunks());
    expect(chunks.map(({ output }) => output)).toEqual([1, 2]);
  });
});

describe('a call', () => {
  it('is overtaken by later ones if its request is delayed', async () => {
    const harness = await start();
    const job = await hold(harness);
    const release = harness.holdNextRequest();
    gate.resolve();
    await harness.advance(10_000);
    expect(await job.record()).toMatchObject({ status: 'IN_PROGRESS' });
    await job.cancel();
    release();
    await harness.advance(10_000);
    expect(await job.record()).toMatchObject({ status: 'CANCELLED', attempt: 1 });
  });

  it('has its effect also if its answer is delayed', async () => {
    const harness = await start();
    const release = harness.holdNextAnswer();
    const job = await hold(harness);
    gate.resolve();
    await harness.advance(0);
    const [first] = await Array.fromAsync(takeFirst(job.chunks()));
    expect(first).toMatchObject({ output: 1 });
    expect(await job.record()).toMatchObject({ status: 'IN_PROGRESS' });
    release();
    expect(await waitForEnd(harness, job)).toMatchObject(ONCE);
  });

  it('takes as long as the network is slow', async () => {
    const harness = await start();
    const job = await hold(harness);
    harness.slowDown(3_000);
    gate.resolve();
    await harness.advance(2_999);
    expect(await job.record()).toMatchObject({ status: 'IN_PROGRESS' });
    await harness.advance(1);
    expect(await job.record()).toMatchObject(ONCE);
  });
});

async function* takeFirst<T>(source: AsyncIterable<T>) {
  for await (const item of source) {
    yield item;
    return;
  }
}

describe('a network', () => {
  it('loses no job if its connections break', async () => {
    const harness = await start();
    const job = await hold(harness);
    harness.cutConnections();
    const next = await harness.submit({ name: 'next' });
    await harness.advance(0);
    expect(runs['next']).toBeUndefined();
    gate.resolve();
    expect(await waitForEnd(harness, job)).toMatchObject(ONCE);
    expect(await waitForEnd(harness, next)).toMatchObject(ONCE);
    expect(runs).toEqual({ held: 1, next: 1 });
  });

  it.each(['disconnect', 'fallSilent'] as const)(
    'delays the result if it fails for longer than a lease (%s)',
    async (fault) => {
      const harness = await start();
      const job = await hold(harness);
      harness[fault]();
      gate.resolve();
      await harness.advance(60_000);
      // Its lease ran out, and nobody else is there to take it.
      expect(await job.record()).toMatchObject({ status: 'IN_QUEUE' });
      harness.reconnect();
      expect(await waitForEnd(harness, job)).toMatchObject(ONCE);
      expect(runs).toEqual({ held: 1 });
    },
  );

  it('prevents neither the end of a cancelled job nor the run of another while it is silent', async () => {
    const harness = await start();
    const job = await hold(harness);
    harness.fallSilent();
    await job.cancel();
    expect(await job.record()).toMatchObject({ status: 'CANCELLED' });
    const next = await harness.submit({ name: 'next' });
    harness.reconnect();
    expect(await waitForEnd(harness, next)).toMatchObject({ status: 'COMPLETED' });
  });
});

describe('a platform that is down', () => {
  it('gets the result when it returns after longer than a lease', async () => {
    const harness = await start();
    const job = await hold(harness);
    await harness.stopPlatform();
    gate.resolve();
    await harness.advance(60_000);
    await harness.startPlatform();
    expect(await waitForEnd(harness, job)).toMatchObject(ONCE);
    expect(runs).toEqual({ held: 1 });
  });

  it('gives the job to the next worker if the worker is killed meanwhile', async () => {
    const harness = await start();
    const job = await hold(harness);
    await harness.stopPlatform();
    const killing = harness.killWorker();
    await harness.advance(10_000);
    await harness.startPlatform();
    await harness.advance(10_000);
    await killing;
    gate.resolve();
    expect(await waitForEnd(harness, job)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });
});

describe('a thread that is killed', () => {
  it('fails its job, which is retried alone, and releases the others without blame', async () => {
    const harness = await start();
    const job = await hold(harness, 'killed');
    const neighbour = await hold(harness, 'neighbour');
    harness.killThread(job.id);
    await advanceUntil(harness, () => runs['neighbour'] === 2);
    await harness.advance(5_000);
    expect(runs['killed']).toBe(1);
    gate.resolve();
    expect(await waitForEnd(harness, neighbour)).toMatchObject({ attempt: 2 });
    expect(await waitForEnd(harness, job)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('fails its job with its own code, if it happens every time', async () => {
    const harness = await start({ maxAttempts: 2 });
    const job = await hold(harness);
    harness.killThread(job.id);
    await advanceUntil(harness, () => runs['held'] === 2);
    harness.killThread(job.id);
    expect(await waitForEnd(harness, job)).toMatchObject({
      status: 'FAILED',
      error: { code: 'thread_crashed', attempts: [{ attempt: 1 }, { attempt: 2 }] },
    });
  });

  it('is refused for a job that does not run', async () => {
    const harness = await start();
    expect(() => harness.killThread('nobody')).toThrow('nobody');
  });
});

describe('a harness', () => {
  it.each(['disconnect', 'fallSilent', 'stopPlatform'] as const)(
    'closes at once after %s',
    async (fault) => {
      const harness = await createHarness({ handler: count, clock: 'manual' });
      await hold(harness);
      await harness[fault]();
      await harness.close();
      expect(runs).toEqual({ held: 1 });
    },
  );

  it('shows the trace of a request to the handler', async () => {
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const handler = async (_job: Job, ctx: Context) => [ctx.traceparent, ctx.tracestate];
    const harness = await start({ handler });
    const output = await harness.run({}, { traceparent, tracestate: 'a=1' });
    expect(output).toEqual([traceparent, 'a=1']);
  });
});
