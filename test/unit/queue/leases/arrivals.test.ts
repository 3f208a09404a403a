// The timeline of jobs that have waited for a worker: its start, and its wake, with where the time went.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeTimeline } from '../../../../src/queue/timeline.ts';
import type {
  ParkingState,
  WorkerParking,
  WorkerStart,
} from '../../../../src/wire/link/worker-link.ts';
import { ENDPOINT, Hand, Platform } from '../../../support/queue-platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
});

afterEach(() => platform.close());

const parts = {
  queueMs: 400,
  installMs: 2_000,
  interpreterMs: 90,
  importMs: 3_000,
  setupMs: 5_000,
};
const startAt = (at: number): WorkerStart => ({ of: 'worker', at, parts });
const hand = (slots = 1) => new Hand(() => platform.queue.link(ENDPOINT, 'pod_1'), { slots });

async function readTimeline(jobId: string) {
  return describeTimeline(await platform.job(jobId));
}

function parking(state: ParkingState, change: number, vramBytes = 0): WorkerParking {
  return { way: 'driver', state, change, vramBytes, hostLimitBytes: 100 };
}

it('the first jobs after a start have its parts, and those behind them do not', async () => {
  const [first, second] = [await platform.submit(), await platform.submit()];
  await platform.clock.advance(11_000);
  const readyAt = platform.clock.now();
  const worker = hand();
  await worker.hello([], undefined, { start: startAt(readyAt) });
  await platform.clock.advance(3);
  const lease = await worker.takeOne();
  await worker.finish(lease, { kind: 'completed', executionMs: 1, output: 'value' }, { body: '1' });
  await worker.takeOne();
  expect((await readTimeline(first))[1]).toEqual({
    ...{ at: readyAt, event: 'worker_started', attempt: 1, workerId: 'w1', start: parts },
  });
  const events = (await readTimeline(second)).map(({ event }) => event);
  expect(events).toEqual(['submitted', 'started']);
});

it('a job that came after the start has not waited for it, also if the worker says hello again', async () => {
  const start = startAt(platform.clock.now());
  await platform.clock.advance(5);
  const worker = hand();
  await worker.hello([], undefined, { start });
  const id = await platform.submit();
  await worker.takeOne();
  expect((await readTimeline(id)).map(({ event }) => event)).toEqual(['submitted', 'started']);
});

it('a job has not waited for a model process that started later in a worker', async () => {
  const id = await platform.submit();
  const worker = hand();
  const at = platform.clock.now();
  await worker.hello([], undefined, { start: { of: 'model', at, parts: { setupMs: 9 } } });
  await worker.takeOne();
  expect((await readTimeline(id)).map(({ event }) => event)).toEqual(['submitted', 'started']);
});

it('a clock of the worker that is ahead puts nothing into the future', async () => {
  const id = await platform.submit();
  const worker = hand();
  await worker.hello([], undefined, { start: startAt(platform.clock.now() + 86_400_000) });
  await worker.takeOne();
  const [, started] = await readTimeline(id);
  expect(started).toMatchObject({ event: 'worker_started', at: platform.clock.now() });
});

it('a job that waited for a wake says how long that took, and how', async () => {
  const worker = hand();
  await worker.hello();
  await worker.renew([], { parking: parking('ready', 0) });
  await worker.renew([], { parking: parking('parked', 2, 7) });
  const id = await platform.submit();
  await platform.clock.advance(100);
  await worker.renew([], { parking: parking('waking', 3, 7) });
  await platform.clock.advance(320);
  await worker.renew([], { parking: parking('ready', 4) });
  await worker.takeOne();
  expect((await readTimeline(id))[1]).toMatchObject({
    ...{
      event: 'worker_woken',
      attempt: 1,
      workerId: 'w1',
      waitedMs: 320,
      bytes: 7,
      way: 'driver',
    },
  });
});

it('a worker that turns back before it is parked has not woken', async () => {
  const worker = hand();
  await worker.hello();
  await worker.renew([], { parking: parking('ready', 0) });
  await worker.renew([], { parking: parking('parking', 1) });
  const id = await platform.submit();
  await worker.renew([], { parking: parking('ready', 2) });
  await worker.takeOne();
  expect((await readTimeline(id)).map(({ event }) => event)).toEqual(['submitted', 'started']);
});

it('the scaler sees the last start, with all parts that were told', async () => {
  const worker = hand();
  const start = startAt(platform.clock.now());
  await worker.hello([], undefined, { start });
  const called = { ...start, parts: { ...parts, firstCallMs: 70 } };
  await worker.renew([], { start: called });
  // Renewals from before.
  await worker.renew([], { start });
  await worker.renew([], { start: { ...start, at: start.at - 1 } });
  expect((await platform.queue.workerLoads.load(ENDPOINT)).workers[0]?.start).toEqual(called);
});
