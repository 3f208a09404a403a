// Urgent jobs suspend running ones, which go on where they were: queue, pods and fleet together, in time that the test drives.
import { describe, expect, it, onTestFinished } from 'vitest';
import { decide } from '../../../../src/control/scaling/scaler.ts';
import type { JobDetails } from '../../../../src/wire/job/job-records.ts';
import { FleetWorld, type FleetWorldOptions } from '../../../support/containers/fleet-world.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';

const GPU = 'NVIDIA L4';
const ON_GPU = { gpuTypeIds: [GPU], idleTimeout: 3_600, workersMax: 1, minResidenceMs: 0 };
const URGENT = { priority: 5 };
/** A run of the job of `long`. */
const LONG_MS = 60_000;

/** `long` runs a job of a minute on the only GPU, with ten seconds to spare; jobs of `urgent` take a second. */
async function openBusy(changes: object = {}, options: FleetWorldOptions = {}) {
  const world = await FleetWorld.open({
    ...{ gpus: makeGpus(GPU, 1), jobMs: LONG_MS, bootMs: 1_000, parkMs: 200, suspends: true },
    ...options,
  });
  onTestFinished(() => world.close());
  const long = await world.createEndpoint({
    ...{ ...ON_GPU, name: 'long', preemptible: true, executionTimeout: LONG_MS + 10_000 },
    ...changes,
  });
  const urgent = await world.createEndpoint({ ...ON_GPU, name: 'urgent', preemptAbovePriority: 3 });
  await world.submit(long);
  await world.run(10_000);
  world.habits.jobMs = 1_000;
  const [pod] = world.listPods(long);
  return { world, long, urgent, podId: pod?.id ?? '' };
}

const isDone = async (world: FleetWorld, id: string, count = 1) => {
  world.listResidents();
  return (await world.countJobs(id)).completed === count;
};

const isSuspended = (world: FleetWorld, podId: string) => !world.worker(podId).isResident;

async function readJob(world: FleetWorld, endpointId: string): Promise<JobDetails> {
  const { jobs } = world.platform.queue;
  const listing = { endpointId, status: undefined, before: undefined, limit: 1 };
  const [job] = (await jobs.list(listing)).jobs;
  const pieces = await jobs.details({ endpointId, id: job?.id ?? '' });
  return JSON.parse(Buffer.concat(pieces).toString());
}

describe('an urgent job', () => {
  it('gets the GPU of a running job, which goes on afterwards', async () => {
    const { long, podId, urgent, world } = await openBusy();
    await world.submit(urgent, 1, URGENT);
    await world.until(() => isDone(world, urgent), 5_000);
    expect(world.listPods(long)).toMatchObject([{ id: podId, gpus: [], parked: { bytes: 1 } }]);
    await world.until(() => !isSuspended(world, podId), 2_000);
    await world.until(() => isDone(world, long), LONG_MS);
    expect(await world.countJobs(long)).toMatchObject({ retried: 0, failed: 0 });
    const decisions = await world.explain(long);
    const suspended = decisions.find(({ cause }) => cause === 'preempted');
    expect(suspended?.reason).toBe(
      'jobs of priority 5 of endpoint urgent wait for a GPU: suspending the jobs of 1 worker',
    );
    expect(suspended && decide(suspended.input)).toMatchObject({ suspend: [podId], drain: [] });
    const resumed = decisions.find(({ cause }) => cause === 'resumed');
    expect(resumed && decide(resumed.input)).toMatchObject({ resume: [podId] });
  });

  it('keeps the GPU while more urgent jobs wait, and the deadline of the suspended one moves', async () => {
    const { long, podId, urgent, world } = await openBusy();
    const before = await readJob(world, long);
    await world.submit(urgent, 100, URGENT);
    await world.until(() => isDone(world, urgent, 100), 120_000);
    expect(await readJob(world, long)).toMatchObject({
      ...{ status: 'IN_PROGRESS', attempt: 1, suspendedSince: expect.any(Number) },
    });
    await world.until(() => !isSuspended(world, podId), 2_000);
    await world.run(1_000);
    const after = await readJob(world, long);
    const [gone, back] = after.timeline.slice(-2);
    expect([gone, back]).toMatchObject([
      { event: 'suspended', attempt: 1 },
      { event: 'resumed', attempt: 1, waitedMs: (back?.at ?? 0) - (gone?.at ?? 0) },
    ]);
    expect(back?.waitedMs).toBeGreaterThan(100_000);
    expect(after.expiresAt - before.expiresAt).toBe(back?.waitedMs);
    expect(after).not.toHaveProperty('suspendedSince');
    // It has had 60 s of its 70 s when it ends.
    await world.until(() => isDone(world, long), LONG_MS);
    const { executionTime } = await readJob(world, long);
    expect(executionTime).toBeLessThan(LONG_MS + 5_000);
  });

  it.each<[why: string, changes: object, policy: object]>([
    ['a job that is as urgent', { preemptible: true }, { priority: 3 }],
    ['an endpoint that is not preemptible', { preemptible: false }, URGENT],
    ['an attempt that may not be suspended', { maxSuspensions: 0 }, URGENT],
  ])('does not suspend %s', async (_, changes, policy) => {
    const { long, podId, urgent, world } = await openBusy(changes);
    await world.submit(urgent, 1, policy);
    await world.run(20_000);
    expect(isSuspended(world, podId)).toBe(false);
    await world.until(() => isDone(world, long), LONG_MS);
    await world.until(() => isDone(world, urgent), 10_000);
  });

  it('suspends no worker that cannot be', async () => {
    const { long, podId, urgent, world } = await openBusy({}, { suspends: false });
    await world.submit(urgent, 1, URGENT);
    await world.run(20_000);
    expect(isSuspended(world, podId)).toBe(false);
    await world.until(() => isDone(world, long), LONG_MS);
  });

  it('asks a worker that cannot be suspended once a minute, and its job runs on', async () => {
    const { long, podId, urgent, world } = await openBusy({}, { suspends: 'never' });
    await world.submit(urgent, 1, URGENT);
    await world.run(10_000);
    expect(world.worker(podId).refusals).toBe(1);
    const [pod] = world.listPods(long);
    expect(pod).toMatchObject({ id: podId, gpus: [`${GPU}-0`] });
    await world.until(() => isDone(world, long), LONG_MS);
    await world.until(() => isDone(world, urgent), 10_000);
    expect(await world.countJobs(long)).toMatchObject({ retried: 0, failed: 0 });
  });

  it('takes the GPU of an idle worker first', async () => {
    const { long, podId, urgent, world } = await openBusy({}, { gpus: makeGpus(GPU, 2) });
    const idle = await world.createEndpoint({ ...ON_GPU, name: 'idle' });
    await world.submit(idle);
    await world.until(() => isDone(world, idle), 10_000);
    await world.run(10_000);
    await world.submit(urgent, 1, URGENT);
    await world.until(() => isDone(world, urgent), 5_000);
    expect(isSuspended(world, podId)).toBe(false);
    expect((await world.explain(long)).some(({ cause }) => cause === 'preempted')).toBe(false);
  });

  it('suspends the lowest priority, and of that the youngest attempt', async () => {
    const { urgent, world } = await openBusy({}, { gpus: makeGpus(GPU, 3) });
    world.habits.jobMs = LONG_MS;
    const ids: string[] = [];
    for (const priority of [0, 1]) {
      const name = `other${priority}`;
      const id = await world.createEndpoint({ ...ON_GPU, name, preemptible: true });
      await world.submit(id, 1, { priority });
      await world.run(5_000);
      ids.push(world.listPods(id)[0]?.id ?? '');
    }
    world.habits.jobMs = 1_000;
    await world.submit(urgent, 1, URGENT);
    await world.until(() => isDone(world, urgent), 5_000);
    expect(ids.map((id) => isSuspended(world, id))).toEqual([true, false]);
  });

  it('cannot hold a suspended job off for longer than its endpoint says', async () => {
    const { podId, urgent, world } = await openBusy({ maxSuspendedSeconds: 20 });
    await world.submit(urgent, 60, URGENT);
    await world.until(() => isSuspended(world, podId), 5_000);
    await world.run(19_000);
    expect(isSuspended(world, podId)).toBe(true);
    await world.until(() => !isSuspended(world, podId), 5_000);
    // Nor again.
    await world.run(20_000);
    expect(isSuspended(world, podId)).toBe(false);
  });

  it('suspends an attempt a limited number of times', async () => {
    const { long, podId, urgent, world } = await openBusy({ maxSuspensions: 2 });
    for (let n = 1; n <= 2; n++) {
      await world.submit(urgent, 1, URGENT);
      await world.until(() => isDone(world, urgent, n), 5_000);
      await world.until(() => !isSuspended(world, podId), 2_000);
      await world.run(2_000);
    }
    await world.submit(urgent, 1, URGENT);
    await world.run(10_000);
    expect(await isDone(world, urgent, 2)).toBe(true);
    await world.until(() => isDone(world, long), LONG_MS);
    await world.until(() => isDone(world, urgent, 3), 10_000);
  });
});

describe('a suspended job', () => {
  it('outlives a restart of the platform', async () => {
    const { long, podId, urgent, world } = await openBusy();
    await world.submit(urgent, 100, URGENT);
    await world.until(() => isSuspended(world, podId), 5_000);
    await world.run(30_000);
    await world.leave();
    await world.run(5_000);
    await world.start();
    await world.run(10_000);
    expect(await readJob(world, long)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
    expect(isSuspended(world, podId)).toBe(true);
    await world.until(() => isDone(world, urgent, 100), 200_000);
    await world.until(() => isDone(world, long), LONG_MS);
    const { attempt, timeline } = await readJob(world, long);
    expect(attempt).toBe(1);
    const events = timeline.map(({ event }) => event);
    expect(events.filter((event) => event === 'suspended' || event === 'resumed')).toHaveLength(2);
  });

  it('returns to the queue without a failure if its worker dies', async () => {
    const { long, podId, urgent, world } = await openBusy();
    await world.submit(urgent, 30, URGENT);
    await world.until(() => isSuspended(world, podId), 5_000);
    await world.run(5_000);
    world.host.end(podId, 137);
    await world.until(async () => (await world.countJobs(long)).inQueue === 1, 20_000);
    await world.until(() => isDone(world, long), 200_000);
    expect(await world.countJobs(long)).toMatchObject({ failed: 0, retried: 0 });
  });
});
