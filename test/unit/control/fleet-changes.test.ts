// What becomes of workers when what they are made from changes, when GPUs are few, and when the platform
// is started again; and what is written down of it all.
import { describe, expect, it, onTestFinished } from 'vitest';
import { decide } from '../../../src/control/scaling/scaler.ts';
import { OWNER } from '../../../src/store/store.ts';
import { FleetWorld, type FleetWorldOptions } from '../../support/containers/fleet-world.ts';
import { makeGpus } from '../../support/containers/gpus.ts';

async function openWorld(options?: FleetWorldOptions): Promise<FleetWorld> {
  const world = await FleetWorld.open(options);
  onTestFinished(() => world.close());
  return world;
}

describe('a change of the template', () => {
  it('replaces all workers while 200 jobs go through them, and loses none', async () => {
    const world = await openWorld();
    const templateId = await world.createTemplate();
    const id = await world.createEndpoint({ templateId, workersMax: 4 });
    await world.submit(id, 200);
    await world.run(30_000);
    const before = world.listRunning();
    expect(before).toHaveLength(4);
    await world.platform.templates.update(OWNER, templateId, { env: { A: 'b' } });
    await world.until(async () => (await world.countJobs(id)).completed === 200);
    expect(await world.countJobs(id)).toMatchObject({ retried: 0, failed: 0 });
    expect(world.most).toBe(5);
    const after = world.listPods(id);
    expect(after).toHaveLength(4);
    for (const pod of after) {
      expect(before).not.toContain(pod.id);
      expect(pod.spec).toMatchObject({ templateVersion: 2, env: { A: 'b' } });
    }
    await world.until(() => world.listRunning().length === 0, 20_000);
  });

  it('keeps the old workers running if new ones crash', async () => {
    const world = await openWorld();
    const templateId = await world.createTemplate();
    const id = await world.createEndpoint({ templateId, workersMin: 2, workersMax: 2 });
    await world.run(1_000);
    const before = world.listRunning();
    await world.platform.templates.update(OWNER, templateId, { args: 'exit 1' });
    await world.run(60_000);
    expect(world.listRunning()).toEqual(before);
    await world.submit(id, 3);
    await world.run(5_000);
    expect(await world.countJobs(id)).toMatchObject({ completed: 3 });
  });

  it('replaces no worker if only the name changes', async () => {
    const world = await openWorld();
    const templateId = await world.createTemplate();
    await world.createEndpoint({ templateId, workersMin: 1 });
    await world.run(1_000);
    const before = world.listRunning();
    await world.platform.templates.update(OWNER, templateId, { name: 'another' });
    await world.run(5_000);
    expect(world.listRunning()).toEqual(before);
  });
});

describe('the network volume of an endpoint', () => {
  it('is mounted by all workers, and a change of it or its path replaces them', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ networkVolumeId: 'a', workersMin: 2 });
    const readMounts = async () => {
      await world.run(10_000);
      return world.listPods(id).map(({ spec }) => spec.mounts);
    };
    const mountsOf = (volumeId: string, path: string) =>
      new Array(2).fill({ network: [{ volumeId, path }] });
    expect(await readMounts()).toEqual(mountsOf('a', '/runpod-volume'));
    await world.platform.endpoints.update(OWNER, id, { networkVolumeId: 'b' });
    expect(await readMounts()).toEqual(mountsOf('b', '/runpod-volume'));
    await world.platform.endpoints.update(OWNER, id, { networkVolumePath: '/b' });
    expect(await readMounts()).toEqual(mountsOf('b', '/b'));
    const before = world.listRunning();
    await world.platform.endpoints.update(OWNER, id, { idleTimeout: 7 });
    expect(await readMounts()).toEqual(mountsOf('b', '/b'));
    expect(world.listRunning()).toEqual(before);
    await world.platform.endpoints.update(OWNER, id, { networkVolumeId: null });
    expect(await readMounts()).toEqual([{}, {}]);
  });
});

describe('GPUs', () => {
  const devices = [...makeGpus('A', 1), ...makeGpus('B', 2)];

  it('are taken from the preferred type first, then from the next', async () => {
    const world = await openWorld({ gpus: devices });
    const id = await world.createEndpoint({ gpuTypeIds: ['A', 'B'], workersMin: 2 });
    await world.run(1_000);
    const held = world.listPods(id).flatMap(({ gpus }) => gpus);
    expect(held.sort()).toEqual(['A-0', 'B-0']);
  });

  it('are awaited with a reason while they are busy, and taken when they are free', async () => {
    const world = await openWorld({ gpus: devices });
    const other = await world.createEndpoint({ gpuTypeIds: ['A'], workersMin: 1 });
    await world.run(1_000);
    const id = await world.createEndpoint({ gpuTypeIds: ['A'], workersMin: 1 });
    await world.run(5_000);
    expect(world.listPods(id)).toEqual([]);
    expect((await world.explain(id))[0]?.cause).toBe('no_gpu');
    await world.platform.endpoints.update(OWNER, other, { workersMin: 0 });
    await world.run(10_000);
    expect(world.listPods(id).flatMap(({ gpus }) => gpus)).toEqual(['A-0']);
  });

  it('go from an old worker to a new one if no other is free', async () => {
    const world = await openWorld({ gpus: makeGpus('A', 2) });
    const templateId = await world.createTemplate();
    const id = await world.createEndpoint({ templateId, gpuTypeIds: ['A'], workersMin: 2 });
    await world.run(1_000);
    await world.platform.templates.update(OWNER, templateId, { env: { A: 'b' } });
    await world.run(10_000);
    const pods = world.listPods(id);
    expect(pods.map(({ spec }) => spec.templateVersion)).toEqual([2, 2]);
    expect(pods.flatMap(({ gpus }) => gpus).sort()).toEqual(['A-0', 'A-1']);
    expect(world.most).toBe(2);
  });

  it('replace the workers if they are of another type', async () => {
    const world = await openWorld({ gpus: devices });
    const id = await world.createEndpoint({ gpuTypeIds: ['A'], workersMin: 1 });
    await world.run(1_000);
    await world.platform.endpoints.update(OWNER, id, { gpuTypeIds: ['B'] });
    await world.run(10_000);
    expect(world.listPods(id).flatMap(({ gpus }) => gpus)).toEqual(['B-0']);
  });
});

describe('jobs that run out of memory on a GPU type', () => {
  const gpus = [...makeGpus('A', 2), ...makeGpus('B', 1)];
  const gpuTypeIds = ['A', 'B'];
  const endpoint = { gpuTypeIds, retryOutOfMemoryOn: 'NEXT_GPU_TYPE' as const };
  const typesOf = (world: FleetWorld, id: string) =>
    world.listPods(id).map(({ spec }) => spec.gpu?.id);

  it('get a worker of the next type, though the first one is free', async () => {
    const world = await openWorld({ gpus });
    world.habits.tooSmall = ['A'];
    const id = await world.createEndpoint({ ...endpoint, idleTimeout: 60 });
    await world.submit(id, 3);
    await world.until(async () => (await world.countJobs(id)).completed === 3);
    expect(typesOf(world, id)).toContain('B');
    const started = (await world.explain(id)).find(({ cause }) => cause === 'next_gpu');
    expect(started).toMatchObject({ startOn: ['B'], started: [{ gpu: 'B' }] });
    expect(started?.reason).toMatch(/^\d jobs? ran out of memory on A: starting 1 worker/);
    for (const { drain, input, start, want } of await world.explain(id)) {
      expect(decide(input)).toMatchObject({ drain, start, want });
    }
  });

  it('wait with a reason while no GPU of the next type is free', async () => {
    const world = await openWorld({ gpus });
    world.habits.tooSmall = ['A'];
    const other = await world.createEndpoint({ gpuTypeIds: ['B'], workersMin: 1 });
    await world.run(2_000);
    const id = await world.createEndpoint(endpoint);
    await world.submit(id);
    await world.until(async () => (await world.explain(id))[0]?.cause === 'no_gpu');
    expect((await world.explain(id))[0]?.reason).toBe(
      '1 job ran out of memory on A, but no GPU of a later type is free: B',
    );
    expect(await world.explainWait(id)).toMatchObject({
      code: 'later_gpu_type',
      message: expect.stringContaining('ran out of memory on A and needs a worker of a later'),
    });
    await world.run(60_000);
    expect(await world.countJobs(id)).toMatchObject({ inQueue: 1, completed: 0 });
    await world.platform.endpoints.update(OWNER, other, { workersMin: 0 });
    await world.until(async () => (await world.countJobs(id)).completed === 1);
  });

  it('replace the only worker that the endpoint may have, also under load', async () => {
    const world = await openWorld({ gpus });
    world.habits.tooSmall = ['A'];
    const id = await world.createEndpoint({ ...endpoint, workersMin: 1, workersMax: 1 });
    await world.run(2_000);
    expect(typesOf(world, id)).toEqual(['A']);
    await world.submit(id, 5);
    await world.until(async () => (await world.countJobs(id)).completed === 5);
    expect(typesOf(world, id)).toEqual(['B']);
    expect(world.most).toBe(1);
    const drains = (await world.explain(id)).filter(({ drain }) => drain.length > 0);
    expect(drains).toMatchObject([{ cause: 'next_gpu' }]);
  });
});

describe('a worker that its user has ended', () => {
  it.each([
    ['stop', 'its user stopped it'],
    ['terminate', 'its user terminated it'],
  ] as const)('is recorded after %s, and does not count as a crash', async (action, reason) => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 1 });
    await world.run(1_000);
    const [worker] = world.listPods(id);
    const podId = worker?.id ?? '';
    await world.platform.pods.act(OWNER, podId, action);
    await world.run(5_000);
    expect(world.listPods(id).map((pod) => pod.id)).not.toContain(podId);
    expect(world.listPods(id)).toHaveLength(1);
    const record = await world.platform.pods.show(await world.platform.pods.find(OWNER, podId));
    expect(record).toMatchObject({ status: 'TERMINATED', reason });
    const decisions = await world.explain(id);
    const seen = decisions.flatMap(({ input }) =>
      input.workers.filter((each) => each.id === podId),
    );
    expect(seen).toContainEqual(expect.objectContaining({ state: 'draining', reason }));
    expect(decisions[0]?.input.crashes.streak).toBe(0);
  });

  it('is distinguished from one that exited by itself', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 1 });
    await world.run(1_000);
    const podId = world.listPods(id)[0]?.id ?? '';
    world.host.end(podId, 0);
    await world.run(5_000);
    const record = await world.platform.pods.show(await world.platform.pods.find(OWNER, podId));
    expect(record).toMatchObject({ status: 'TERMINATED', reason: null });
  });
});

describe('a full machine', () => {
  const limits = { memoryGb: 9, vcpus: 100, diskGb: 1_000 };

  it('makes workers wait, with a reason and the numbers, until capacity is free', async () => {
    const world = await openWorld({ limits });
    const other = await world.createEndpoint({ workersMin: 2 });
    await world.run(1_000);
    const id = await world.createEndpoint({ workersMin: 1 });
    await world.run(5_000);
    expect(world.listPods(id)).toEqual([]);
    expect((await world.explain(id))[0]).toMatchObject({
      cause: 'no_capacity',
      reason:
        '1 more worker needed, but the machine is full: memory: 4 GB wanted, 1 GB of 9 GB free',
    });
    await world.platform.endpoints.update(OWNER, other, { workersMin: 1 });
    await world.run(10_000);
    expect(world.listPods(id)).toHaveLength(1);
    expect((await world.explain(id))[0]?.input.crashes.streak).toBe(0);
  });

  it('runs as many workers as fit', async () => {
    const world = await openWorld({ limits });
    const id = await world.createEndpoint({ workersMin: 3, workersMax: 3 });
    await world.run(5_000);
    expect(world.listPods(id)).toHaveLength(2);
    expect((await world.explain(id))[0]).toMatchObject({ cause: 'no_capacity', want: 3, start: 0 });
  });

  it('replaces workers by ending an old one first', async () => {
    const world = await openWorld({ limits });
    const templateId = await world.createTemplate();
    const id = await world.createEndpoint({ templateId, workersMin: 2 });
    await world.run(1_000);
    await world.platform.templates.update(OWNER, templateId, { env: { A: 'b' } });
    await world.run(10_000);
    expect(world.listPods(id).map(({ spec }) => spec.templateVersion)).toEqual([2, 2]);
    expect(world.most).toBe(2);
  });
});

describe('a restarted platform', () => {
  it('adopts running workers and starts no others', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMax: 2 });
    await world.submit(id, 40);
    await world.run(15_000);
    const before = world.listRunning();
    expect(before).toHaveLength(2);
    await world.leave();
    await world.run(3_000);
    await world.start();
    await world.until(async () => (await world.countJobs(id)).completed === 40);
    expect(world.listRunning()).toEqual(before);
    expect(await world.countJobs(id)).toMatchObject({ retried: 0, failed: 0 });
  });

  it('ends leftover workers and starts the needed ones', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 1 });
    await world.run(1_000);
    const [podId = ''] = world.listRunning();
    await world.leave();
    world.host.end(podId, 1);
    await world.start();
    await world.run(5_000);
    expect(world.listRunning()).toHaveLength(1);
    expect(world.listPods(id)).toHaveLength(1);
    expect(world.host.containers.has(podId)).toBe(false);
  });

  it('starts workers for requests that arrived before the restart', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint();
    await world.platform.fleet.close();
    await world.submit(id);
    await world.leave();
    await world.start();
    await world.run(3_000);
    expect(await world.countJobs(id)).toMatchObject({ completed: 1 });
  });

  it('remembers crashes of workers', async () => {
    const world = await openWorld();
    const templateId = await world.createTemplate({ args: 'exit 7' });
    const id = await world.createEndpoint({ templateId });
    await world.submit(id);
    await world.run(90_000);
    await world.leave();
    await world.start();
    const before = (await world.explain(id)).filter(({ start }) => start > 0).length;
    await world.run(60_000);
    const after = (await world.explain(id)).filter(({ start }) => start > 0).length;
    expect(after - before).toBeLessThanOrEqual(2);
  });

  it('ends the keys of removed pods', async () => {
    const world = await openWorld();
    const { keys } = world.platform;
    const podId = 'pod_0192d3a0-0000-7000-8000-000000000000';
    const grant = { name: `pod ${podId}`, scopes: ['worker:e'] };
    const { key } = await keys.issue({ ...grant, podId });
    const other = await keys.issue(grant);
    await world.leave();
    await world.start();
    expect(world.platform.keys.authenticate(key)).toBeUndefined();
    expect(world.platform.keys.authenticate(other.key)).toBeDefined();
  });
});

describe('a load-balancing endpoint', () => {
  async function openBalanced(world: FleetWorld) {
    const templateId = await world.createTemplate({ ports: ['8000/http'] });
    return world.createEndpoint({ templateId, type: 'LOAD_BALANCER', workersMax: 4 });
  }

  it('starts workers for its requests, without a key', async () => {
    const world = await openWorld();
    world.habits.isMute = true;
    const id = await openBalanced(world);
    world.requests.open = 9;
    world.platform.fleet.wake(id);
    await world.run(100);
    expect(world.listRunning()).toHaveLength(3);
    const [podId = ''] = world.listRunning();
    const { env } = world.host.get(podId).spec;
    expect(env).toEqual({ MILLRACE_ENDPOINT: id, MILLRACE_WORKER_ID: podId });
  });

  it('ends a drained worker when its last request has ended', async () => {
    const world = await openWorld();
    world.habits.isMute = true;
    const id = await openBalanced(world);
    world.requests.open = 1;
    world.platform.fleet.wake(id);
    await world.run(1_000);
    const [podId = ''] = world.listRunning();
    const ready = { podId, jobs: 1, draining: false };
    world.requests.workers = [ready];
    await world.run(1_000);
    await world.platform.endpoints.update(OWNER, id, { workersMax: 0 });
    await world.run(1_000);
    expect(world.requests.drained).toContain(podId);
    world.requests.workers = [{ ...ready, draining: true }];
    await world.run(30_000);
    expect(world.listRunning()).toEqual([podId]);
    world.requests.workers = [{ ...ready, jobs: 0, draining: true }];
    await world.run(1_000);
    expect(world.listRunning()).toEqual([]);
  });
});

describe('decisions', () => {
  it('are stored with their inputs and can be reproduced', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMax: 3 });
    await world.submit(id, 30);
    await world.until(async () => (await world.countJobs(id)).completed === 30);
    await world.run(10_000);
    const decisions = await world.explain(id);
    expect(decisions.length).toBeGreaterThan(3);
    for (const { cause, drain, input, reason, start, want } of decisions) {
      expect(decide(input)).toEqual({ cause, drain, reason, start, want });
    }
    const started = decisions.flatMap((decision) => decision.started.map(({ pod }) => pod));
    expect(new Set(started).size).toBe(3);
  });

  it('are not stored if they repeat the previous one', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 1 });
    await world.run(60_000);
    expect(await world.explain(id)).toHaveLength(2);
  });
});
