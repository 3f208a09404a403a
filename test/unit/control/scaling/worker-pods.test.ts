// What worker pods get: a state volume, on engines whose volumes the platform cannot read, and a URL of the platform.
import { describe, expect, it, onTestFinished } from 'vitest';
import { chooseSlot } from '../../../../src/control/scaling/worker-pods.ts';
import { FleetWorld, type FleetWorldOptions } from '../../../support/containers/fleet-world.ts';

async function openStateWorld(): Promise<FleetWorld> {
  const world = await FleetWorld.open({ stateIn: 'volumes', jobMs: 60_000 });
  onTestFinished(() => world.close());
  return world;
}

function slotOf(world: FleetWorld, podId: string): number | undefined {
  return world.host.get(podId).spec.stateVolume?.slot;
}

function listSlots(world: FleetWorld): (number | undefined)[] {
  return world.listRunning().map((id) => slotOf(world, id));
}

/** Oldest first. */
function listNew(world: FleetWorld, known: readonly string[]): string[] {
  return world
    .listRunning()
    .filter((id) => !known.includes(id))
    .sort();
}

describe('the choice of a state volume', () => {
  it('is the lowest free one', () => {
    expect(chooseSlot({ held: new Set(), left: new Set() })).toBe(0);
    expect(chooseSlot({ held: new Set([0, 2]), left: new Set() })).toBe(1);
  });

  it('is first one with undelivered outcomes, unless a pod has it', () => {
    expect(chooseSlot({ held: new Set([0]), left: new Set([3, 2]) })).toBe(2);
    expect(chooseSlot({ held: new Set([2]), left: new Set([2]) })).toBe(0);
  });
});

describe('workers on an engine with state volumes', () => {
  it('have one each, with its path in their environment', async () => {
    const world = await openStateWorld();
    const id = await world.createEndpoint({ workersMin: 3 });
    await world.run(2_000);
    expect(listSlots(world).sort()).toEqual([0, 1, 2]);
    const [podId = ''] = world.listRunning();
    const { env, stateVolume } = world.host.get(podId).spec;
    expect(stateVolume).toMatchObject({ endpointId: id, path: '/state' });
    expect(env).toMatchObject({ MILLRACE_STATE_DIR: '/state', MILLRACE_STATE_OWNER: podId });
  });

  it('keep it across a restart of the pod and of the platform', async () => {
    const world = await openStateWorld();
    await world.createEndpoint({ workersMin: 2, workersMax: 3 });
    await world.run(2_000);
    const before = new Map(world.listRunning().map((podId) => [podId, slotOf(world, podId)]));
    await world.leave();
    await world.start();
    for (const podId of before.keys()) await world.platform.pods.act('owner', podId, 'restart');
    await world.run(2_000);
    expect(new Map(world.listRunning().map((podId) => [podId, slotOf(world, podId)]))).toEqual(
      before,
    );
  });

  it('leave their volume to the next worker when they are killed, before an empty one', async () => {
    const world = await openStateWorld();
    const id = await world.createEndpoint({ workersMin: 2, workersMax: 2 });
    await world.run(2_000);
    const ended = world.listRunning();
    const left = ended.find((podId) => slotOf(world, podId) === 0) ?? '';
    const { incarnation = 0 } = world.platform.queue.workerLoads.ofPod(id, left)[0] ?? {};
    const bye = { workerId: left, incarnation, reason: 'drained' as const, outbox: [] };
    await world.platform.queue.link(id).bye(bye);
    for (const podId of ended) {
      world.worker(podId).kill();
      world.host.end(podId, 137);
    }
    await world.until(() => listNew(world, ended).length === 2, 20_000);
    expect(listNew(world, ended).map((podId) => slotOf(world, podId))).toEqual([1, 0]);
  });

  it('have none if the template names a folder or they do not use the queue', async () => {
    const world = await openStateWorld();
    const env = { MILLRACE_STATE_DIR: '/mine' };
    const templateId = await world.createTemplate({ env });
    await world.createEndpoint({ workersMin: 1, templateId });
    await world.run(2_000);
    const [podId = ''] = world.listRunning();
    expect(world.host.get(podId).spec.env).toMatchObject(env);
    expect(world.host.get(podId).spec).not.toHaveProperty('stateVolume');
    const server = await world.createTemplate({ ports: ['80/http'] });
    await world.createEndpoint({ workersMin: 1, type: 'LOAD_BALANCER', templateId: server });
    await world.run(2_000);
    expect(listSlots(world)).toEqual([undefined, undefined]);
  });
});

describe('the attempts of a worker whose container was killed', () => {
  it('stay leased until the next worker has had time to name its outcomes', async () => {
    const world = await openStateWorld();
    const id = await world.createEndpoint({ workersMin: 1, workersMax: 1 });
    await world.submit(id);
    await world.run(2_000);
    const [killed = ''] = world.listRunning();
    world.worker(killed).kill();
    world.host.end(killed, 137);
    await world.run(10_000);
    expect(world.listRunning()).not.toContain(killed);
    const { queue } = world.platform;
    expect(await queue.openLeases.ofWorker(id, killed)).toMatchObject([{ attempt: 1 }]);
    await world.run(20_000);
    expect(await queue.openLeases.ofWorker(id, killed)).toEqual([]);
  });
});

async function openWorld(options?: FleetWorldOptions): Promise<FleetWorld> {
  const world = await FleetWorld.open(options);
  onTestFinished(() => world.close());
  return world;
}

async function moveTo(world: FleetWorld, url: string): Promise<void> {
  await world.leave();
  world.url = url;
  await world.start();
}

it('replaces workers that no longer reach the platform, without losing a job', async () => {
  const world = await openWorld({ jobMs: 30_000 });
  const id = await world.createEndpoint({ workersMin: 1, workersMax: 2 });
  await world.submit(id, 2);
  await world.run(2_000);
  const before = world.listRunning();
  await moveTo(world, 'http://platform.test:8001');
  await world.run(5_000);
  const urls = world.listRunning().map((pod) => world.host.get(pod).spec.env['MILLRACE_URL']);
  expect(urls).toContain('http://platform.test:8001');
  await world.until(async () => (await world.countJobs(id)).completed === 2, 200_000);
  expect(await world.countJobs(id)).toMatchObject({ completed: 2, failed: 0 });
  const isOldLeft = () => world.listRunning().some((pod) => before.includes(pod));
  await world.until(() => !isOldLeft(), 60_000);
});

it('lets workers that still reach the platform finish their jobs first', async () => {
  const world = await openWorld({ jobMs: 30_000 });
  const id = await world.createEndpoint({ workersMin: 1 });
  await world.submit(id);
  await world.run(2_000);
  const [old = ''] = world.listRunning();
  world.oldUrls.add(world.url);
  await moveTo(world, 'http://other.test');
  await world.run(10_000);
  expect(world.listRunning()).toHaveLength(2);
  await world.until(() => !world.listRunning().includes(old), 60_000);
  expect(await world.countJobs(id)).toMatchObject({ completed: 1, retried: 0 });
});

it('keeps workers if the URL is the same', async () => {
  const world = await openWorld();
  await world.createEndpoint({ workersMin: 2 });
  await world.run(2_000);
  const before = world.listRunning();
  await moveTo(world, world.url);
  await world.run(60_000);
  expect(world.listRunning()).toEqual(before);
});
