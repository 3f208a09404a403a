// Workers that can be parked, as the queue sees them: what they say in renewals, what they are asked, and that they get no jobs.
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { ParkingState, WorkerParking } from '../../../../src/wire/link/worker-link.ts';
import { ENDPOINT, Hand, Platform } from '../../../support/queue-platform.ts';

const POD = 'pod_1';

let platform: Platform;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
});

afterEach(() => platform.close());

async function hello(incarnation = 1): Promise<Hand> {
  const hand = new Hand(() => platform.queue.link(ENDPOINT, POD), { id: 'w', incarnation });
  await hand.hello();
  return hand;
}

function parking(state: ParkingState, change: number): WorkerParking {
  const vramBytes = state === 'parked' ? 7 : 0;
  return { way: 'hooks', state, change, vramBytes, hostLimitBytes: 100 };
}

const park = (wish: 'parked' | 'ready') => platform.queue.workerLoads.park(ENDPOINT, POD, wish);
const readState = async () =>
  (await platform.queue.workerLoads.load(ENDPOINT)).workers[0]?.parking?.state;

it('a worker that says nothing of parking is never asked', async () => {
  const worker = await hello();
  park('parked');
  expect(await worker.renew([])).not.toHaveProperty('parking');
});

it('a worker is asked in each answer, and at once', async () => {
  const worker = await hello();
  expect(await worker.renew([], { parking: parking('ready', 0) })).not.toHaveProperty('parking');
  const open = worker.renew([], { waitMs: 5_000, parking: parking('ready', 0) });
  await platform.clock.advance(0);
  park('parked');
  expect(await open).toMatchObject({ parking: 'parked' });
  const again = await worker.renew([], { parking: parking('parking', 1) });
  expect(again).toMatchObject({ parking: 'parked', drain: false });
  expect(await platform.queue.workerLoads.load(ENDPOINT)).toMatchObject({
    workers: [{ parking: { state: 'parking', wish: 'parked', hostLimitBytes: 100 } }],
  });
});

it('an older state that arrives late is dropped', async () => {
  const worker = await hello();
  await worker.renew([], { parking: parking('parked', 2) });
  await worker.renew([], { parking: parking('parking', 1) });
  expect(await readState()).toBe('parked');
});

it('a worker gets no job from the wish on, until it is ready again', async () => {
  const worker = await hello();
  await worker.renew([], { parking: parking('ready', 0) });
  const open = worker.take({ waitMs: 10_000 });
  await platform.clock.advance(0);
  park('parked');
  // At once: it parks when no take is open.
  expect(await open).toEqual([]);
  await platform.submit();
  expect(await worker.take({ waitMs: 10_000 })).toEqual([]);
  await worker.renew([], { parking: parking('parked', 2) });
  park('ready');
  await platform.clock.advance(1_000);
  await worker.renew([], { parking: parking('waking', 3) });
  expect((await platform.queue.health(ENDPOINT)).workers).toEqual({ idle: 0, running: 0 });
  expect(await worker.take()).toEqual([]);
  await worker.renew([], { parking: parking('ready', 4) });
  expect(await worker.take()).toHaveLength(1);
});

it('an earlier wish does not wake a worker that is parked by now', async () => {
  const worker = await hello();
  await worker.renew([], { parking: parking('ready', 0) });
  park('parked');
  await worker.renew([], { parking: parking('parking', 1) });
  park('ready');
  const answer = await worker.renew([], { parking: parking('parked', 2) });
  expect(answer).toMatchObject({ parking: 'parked', parkingChange: 2 });
  park('ready');
  const next = await worker.renew([], { parking: parking('parked', 2) });
  expect(next).toMatchObject({ parking: 'ready', parkingChange: 2 });
});

it('a job whose lease was lost on the way to a parked worker is not its job', async () => {
  const worker = await hello();
  await platform.submit();
  // The answer is lost: the worker parks, and never names the lease.
  await worker.take();
  for (let renewed = 0; renewed < 5; renewed++) {
    await worker.renew([], { parking: parking('parked', 1) });
    await platform.clock.advance(5_000);
  }
  expect(await platform.queue.workerLoads.load(ENDPOINT)).toMatchObject({
    waiting: 1,
    running: 0,
    workers: [{ jobs: 0, busyUntil: 0 }],
  });
});

it('each change of the state wakes the scaler', async () => {
  const heard: string[] = [];
  const worker = await hello();
  await worker.renew([], { parking: parking('ready', 0) });
  const stop = platform.queue.workerLoads.onWork((id) => heard.push(id));
  await worker.renew([], { parking: parking('parking', 1) });
  await worker.renew([], { parking: parking('parking', 1) });
  await worker.renew([], { parking: parking('parked', 2) });
  stop();
  expect(heard).toEqual([ENDPOINT, ENDPOINT]);
});

it('parked workers are counted on their own', async () => {
  const worker = await hello();
  const count = async () => {
    const { workers } = await platform.queue.activity.now(ENDPOINT);
    return [workers.idle, workers.parked, (await platform.queue.health(ENDPOINT)).workers.parked];
  };
  await worker.renew([], { parking: parking('ready', 0) });
  expect(await count()).toEqual([1, 0, undefined]);
  await worker.renew([], { parking: parking('parking', 1) });
  expect(await count()).toEqual([0, 1, undefined]);
  await worker.renew([], { parking: parking('parked', 2) });
  expect(await count()).toEqual([0, 1, 1]);
  await worker.renew([], { parking: parking('waking', 3) });
  expect(await count()).toEqual([0, 0, undefined]);
});

it('a new process of a parked worker is ready, whatever the one before was', async () => {
  const worker = await hello();
  await worker.renew([], { parking: parking('parked', 2) });
  await hello(2);
  expect(await readState()).toBe('ready');
});
