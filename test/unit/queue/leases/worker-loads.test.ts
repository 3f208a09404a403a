// The load that the queue reports to the scaler.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  completed,
  ENDPOINT,
  Hand,
  outcomeOf,
  Platform,
  refTo,
} from '../../../support/queue-platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
});

afterEach(() => platform.close());

async function hello(id: string, podId: string | null = null): Promise<Hand> {
  const hand = new Hand(() => platform.queue.link(ENDPOINT, podId), { id });
  await hand.hello();
  return hand;
}

const load = () => platform.queue.workerLoads.load(ENDPOINT);

describe('the load of an endpoint', () => {
  it('is empty for an unknown endpoint', async () => {
    const nothing = { waiting: 0, running: 0, oldestQueuedAt: null, workers: [] };
    expect(await load()).toEqual(nothing);
    expect(await platform.queue.workerLoads.load('unknown')).toEqual(nothing);
  });

  it('counts waiting and running jobs and shows since when the first one waits', async () => {
    const worker = await hello('w');
    const since = platform.clock.now();
    await platform.submit();
    await platform.clock.advance(500);
    await platform.submit();
    expect(await load()).toMatchObject({ waiting: 2, running: 0, oldestQueuedAt: since });
    await worker.takeOne();
    expect(await load()).toMatchObject({ waiting: 1, running: 1, oldestQueuedAt: since + 500 });
  });

  it('does not count delayed jobs, alone or beside others', async () => {
    for (let made = 0; made < 3; made++) await platform.submit({ delay: 60_000 });
    expect(await load()).toMatchObject({ waiting: 0, oldestQueuedAt: null });
    await platform.submit();
    expect(await load()).toMatchObject({ waiting: 1 });
    await platform.clock.advance(60_000);
    expect(await load()).toMatchObject({ waiting: 4 });
  });

  it('has what ended attempts used of GPUs', async () => {
    const worker = await hello('w');
    const since = platform.clock.now();
    await platform.submit();
    const report = outcomeOf(await worker.takeOne(), 1, completed, '1');
    expect(await load()).not.toHaveProperty('gpuCount');
    await worker.reportOne({ ...report, usage: { gpu: { seconds: 2.5, shared: false } } });
    expect((await load()).gpuCount).toEqual({ since, ms: 2_500 });
  });

  it('announces each endpoint that gets a ready job, until it is told to stop', async () => {
    const announced: string[] = [];
    const stop = platform.queue.workerLoads.onWork((endpointId) => announced.push(endpointId));
    await platform.submit({ delay: 60_000 });
    expect(announced).toEqual([]);
    await platform.submit();
    expect(announced).toEqual([ENDPOINT]);
    await platform.clock.advance(60_000);
    expect(announced).toEqual([ENDPOINT, ENDPOINT]);
    stop();
    await platform.submit();
    expect(announced).toHaveLength(2);
  });

  it('does not show a draining worker as idle', async () => {
    const worker = await hello('one', 'pod_1');
    await platform.submit();
    await worker.takeOne();
    await hello('two', 'pod_2');
    for (const id of ['pod_1', 'pod_2']) platform.queue.workerLoads.drain(ENDPOINT, id);
    expect((await platform.queue.health(ENDPOINT)).workers).toEqual({ idle: 0, running: 1 });
  });

  it('names the connected workers with their current and total jobs', async () => {
    const [one, other] = [await hello('one'), await hello('other')];
    await platform.submit();
    const lease = await one.takeOne();
    // Its execution timeout, and what the queue waits beyond it.
    const busyUntil = platform.clock.now() + 600_000 + 10_000;
    expect((await load()).workers).toMatchObject([
      { id: 'one', podId: null, jobs: 1, taken: 1, busyUntil, draining: false },
      { id: 'other', podId: null, jobs: 0, taken: 0, busyUntil: 0, draining: false },
    ]);
    await one.finish(lease, completed);
    await platform.clock.advance(10_000);
    await one.renew([]);
    await platform.clock.advance(6_000);
    expect((await load()).workers).toEqual([
      { id: 'one', podId: null, jobs: 0, taken: 1, busyUntil: 0, draining: false },
    ]);
    await other.renew([]);
    expect((await load()).workers).toHaveLength(2);
    await other.bye('drained');
    expect((await load()).workers).toHaveLength(1);
  });

  it('is announced when a job is ready: new, released, or after its delay', async () => {
    const heard: string[] = [];
    const end = platform.queue.workerLoads.onWork((id) => heard.push(id));
    const worker = await hello('w');
    await platform.submit();
    expect(heard).toEqual([ENDPOINT]);
    await worker.takeOne();
    await worker.bye('drained');
    expect(heard).toEqual([ENDPOINT, ENDPOINT]);
    await platform.submit({ delay: 60_000 });
    expect(heard).toHaveLength(2);
    await platform.clock.advance(60_000);
    expect(heard).toHaveLength(3);
    end();
    await platform.submit();
    expect(heard).toHaveLength(3);
  });
});

const POD = 'pod_0192d3a0-0000-7000-8000-000000000012';

/** Two workers of the pod; another pod's, and one of no pod, with IDs like those of the pod's. */
function helloAll(): Promise<Hand[]> {
  return Promise.all([
    hello(`${POD}-0`, POD),
    hello('any', POD),
    hello(POD, POD.replace('12', '13')),
    hello(`${POD}-1`),
  ]);
}

describe('draining a pod', () => {
  it('reaches each of its workers and no other, whatever their IDs', async () => {
    const hands = await helloAll();
    platform.queue.workerLoads.drain(ENDPOINT, POD);
    const told = await Promise.all(hands.map((hand) => hand.renew([])));
    expect(told.map(({ drain }) => drain)).toEqual([true, true, false, false]);
  });

  it('reaches its workers also after a restart of the platform', async () => {
    const [own, , , other] = await helloAll();
    await platform.restart();
    platform.queue.workerLoads.drain(ENDPOINT, POD);
    expect([(await own?.renew([]))?.drain, (await other?.renew([]))?.drain]).toEqual([true, false]);
  });

  it('does nothing if it has no worker', async () => {
    const worker = await hello('w');
    platform.queue.workerLoads.drain(ENDPOINT, 'pod_1');
    platform.queue.workerLoads.drain('another', 'w');
    expect((await worker.renew([])).drain).toBe(false);
  });
});

describe('the end of a pod', () => {
  it('ends its workers and no other, whatever their IDs', async () => {
    await helloAll();
    await platform.queue.endPod(ENDPOINT, POD, async () => []);
    const left = (await load()).workers.map(({ id }) => id);
    expect(left).toEqual([POD, `${POD}-1`]);
  });

  it('keeps the outcomes in each worker’s outbox and requeues the other jobs', async () => {
    const [first, second] = await helloAll();
    const ids = [await platform.submit(), await platform.submit()];
    const kept = await first?.takeOne();
    await second?.takeOne();
    const readOutbox = async (workerId: string) =>
      workerId === `${POD}-0` && kept ? [refTo(kept)] : [];
    await platform.queue.endPod(ENDPOINT, POD, readOutbox);
    const states = await Promise.all(ids.map((id) => platform.job(id)));
    expect(states.map(({ status }) => status)).toEqual(['IN_PROGRESS', 'IN_QUEUE']);
  });
});
