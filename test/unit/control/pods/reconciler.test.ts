// What the reconciler brings about, on a host in memory.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { EngineError } from '../../../../src/engine/engine.ts';
import {
  createCatalog,
  GPU,
  PodWorld,
  type PodWorldOptions,
} from '../../../support/containers/pod-world.ts';

const OWNER = 'owner';

async function openWorld(options?: PodWorldOptions): Promise<PodWorld> {
  const world = await PodWorld.open(options);
  onTestFinished(() => world.close());
  return world;
}

async function startPod(world: PodWorld, creation: Parameters<PodWorld['create']>[0] = {}) {
  const { id } = await world.create(creation);
  await world.settle();
  return id;
}

function statusOf(world: PodWorld, id: string) {
  return world.pods.live.get(id)?.status;
}

describe('a pod that is created', () => {
  it('runs', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', generation: 1 });
    expect(world.host.get(id)).toMatchObject({ seen: { state: 'running' }, runsOnDisk: 1 });
  });

  it('is inspected before each step, and not again once it needs none', async () => {
    const world = await openWorld();
    const inspect = vi.spyOn(world.engine, 'inspect');
    await startPod(world);
    expect(inspect.mock.calls.length).toBeLessThanOrEqual(4);
  });

  it('has its spec and the variables that its record does not contain', async () => {
    const environmentOf = async () => ({ MILLRACE_API_KEY: 'mr_secret', B: 'ours' });
    const world = await openWorld({ reconciler: { environmentOf } });
    const id = await startPod(world, {
      ...{ args: 'serve', disk: 30, ports: ['8000/http', '53/udp'], env: { A: '1', B: '2' } },
      ...{ registry: 'private', mounts: { network: [{ volumeId: 'data', path: '/data' }] } },
      ...{ globalNetworking: true },
    });
    expect(world.host.get(id).spec).toMatchObject({
      ...{ id, generation: 1, image: 'busy', args: 'serve', handler: null, diskGb: 30, gpus: [] },
      env: { A: '1', B: 'ours', MILLRACE_API_KEY: 'mr_secret' },
      ports: [
        { private: 8000, protocol: 'http' },
        { private: 53, protocol: 'udp' },
      ],
      registry: { server: 'r.test', username: 'u', password: 'p' },
      mounts: [{ kind: 'network', source: 'owner-data', path: '/data' }],
      limits: { vcpus: 2, memoryGb: 4 },
      network: expect.stringMatching(/^user-[0-9a-f]{16}$/),
      labels: { 'millrace.user': 'owner' },
    });
    expect(JSON.stringify(world.pods.live.get(id))).not.toContain('mr_secret');
  });

  it('is STARTING until its health check passes, and again when it fails later', async () => {
    const world = await openWorld();
    const id = await startPod(world, { args: 'check' });
    expect(statusOf(world, id)).toBe('STARTING');
    world.host.change(id, { health: 'healthy' });
    await world.settle();
    expect(statusOf(world, id)).toBe('RUNNING');
    world.host.change(id, { health: 'unhealthy' });
    await world.settle();
    expect(world.pods.live.get(id)).toMatchObject({
      status: 'STARTING',
      reason: expect.stringContaining('health check'),
    });
    world.host.change(id, { health: 'healthy' });
    await world.settle();
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', reason: null });
  });

  it('is abandoned with the reason if its image is not available', async () => {
    const world = await openWorld();
    const id = await startPod(world, { image: 'missing' });
    expect(world.pods.live.get(id)).toMatchObject({
      status: 'ERROR',
      reason: 'there is no image "missing"',
    });
    await world.pods.update(OWNER, id, { image: 'busy' });
    await world.pods.act(OWNER, id, 'start');
    await world.settle();
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', reason: null });
  });

  it('is not abandoned if its spec has changed meanwhile', async () => {
    const { promise: isHeld, resolve: release } = Promise.withResolvers<void>();
    const environmentOf = () => isHeld.then(() => ({}));
    const world = await openWorld({ reconciler: { environmentOf } });
    const id = await startPod(world, { image: 'missing' });
    await world.pods.update(OWNER, id, { image: 'busy' });
    release();
    await world.settle();
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', generation: 2 });
  });

  it('is abandoned with the reason if its command cannot be started', async () => {
    const world = await openWorld();
    const id = await startPod(world, { args: 'unstartable' });
    expect(world.pods.live.get(id)).toMatchObject({
      status: 'ERROR',
      reason: 'there is no such command',
    });
  });

  it('is not abandoned if its container disappeared before the start', async () => {
    const world = await openWorld();
    const start = world.engine.start.bind(world.engine);
    world.engine.start = async (id) => {
      world.engine.start = start;
      world.host.remove(id, 'keep');
      return start(id);
    };
    const id = await startPod(world);
    expect(statusOf(world, id)).toBe('RUNNING');
  });

  it('waits with the reason while the engine does not answer, and then runs', async () => {
    const world = await openWorld();
    world.host.trouble = new EngineError('unavailable', 'the engine is away');
    const id = await startPod(world);
    await world.settle(60_000);
    expect(world.pods.live.get(id)).toMatchObject({
      status: 'PROVISIONING',
      reason: 'the engine is away',
    });
    world.host.trouble = undefined;
    await world.settle(15_000);
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', reason: null });
  });

  it('is retried less and less often', async () => {
    const world = await openWorld();
    let tries = 0;
    world.engine.start = async () => {
      tries++;
      throw new EngineError('unavailable', 'the engine is away');
    };
    await startPod(world);
    await world.settle(60_000);
    expect(tries).toBeGreaterThan(5);
    expect(tries).toBeLessThan(15);
  });

  it('is retried soon again after the engine has answered', async () => {
    const world = await openWorld();
    const trouble = new EngineError('unavailable', 'the engine is away');
    world.host.trouble = trouble;
    const id = await startPod(world);
    await world.settle(60_000);
    world.host.trouble = undefined;
    await world.settle(15_000);
    expect(statusOf(world, id)).toBe('RUNNING');
    world.host.trouble = trouble;
    await world.pods.act(OWNER, id, 'stop');
    await world.settle();
    world.host.trouble = undefined;
    expect(world.host.get(id).seen.state).toBe('running');
    await world.settle(600);
    expect(world.host.get(id).seen.state).toBe('exited');
  });

  it('hides internal errors and continues', async () => {
    const world = await openWorld();
    world.host.trouble = new Error('secret path');
    const id = await startPod(world);
    expect(world.pods.live.get(id)?.reason).toBe('the platform failed; it retries');
    world.host.trouble = undefined;
    await world.settle(15_000);
    expect(statusOf(world, id)).toBe('RUNNING');
  });

  it('is recreated when its container is gone, even without a hint', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    world.host.containers.delete(id);
    await world.settle(2_000);
    expect(world.host.get(id).seen).toMatchObject({ state: 'running', generation: 1 });
    expect(statusOf(world, id)).toBe('RUNNING');
  });
});

describe('a pod that exits', () => {
  it('is EXITED after code 0, and is not started again', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    world.host.end(id, 0);
    await world.settle(60_000);
    expect(world.pods.live.get(id)).toMatchObject({ status: 'EXITED', reason: null });
    expect(world.host.get(id).runsOnDisk).toBe(1);
  });

  it('restarts after another code with its disk, and waits longer each time', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    world.host.end(id, 3);
    await world.settle(999);
    expect(world.pods.live.get(id)).toMatchObject({
      status: 'STARTING',
      reason: expect.stringMatching(/\bcode 3\b/),
    });
    await world.settle(1);
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', reason: null });
    world.host.end(id, 3);
    await world.settle(1_999);
    expect(statusOf(world, id)).toBe('STARTING');
    await world.settle(1);
    expect(statusOf(world, id)).toBe('RUNNING');
    expect(world.host.get(id).runsOnDisk).toBe(3);
  });

  it('is in ERROR after three failures in a row and can be started again', async () => {
    const world = await openWorld();
    const id = await startPod(world, { args: 'exit 4' });
    await world.settle(60_000);
    expect(world.pods.live.get(id)).toMatchObject({
      status: 'ERROR',
      reason: expect.stringMatching(/\bcode 4\b.*\b3\b/),
    });
    expect(world.host.get(id).runsOnDisk).toBe(3);
    await world.pods.act(OWNER, id, 'start');
    await world.settle(60_000);
    expect(statusOf(world, id)).toBe('ERROR');
    expect(world.host.get(id).runsOnDisk).toBe(6);
  });

  it('never enters ERROR while each run lasts a minute', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    for (let run = 0; run < 5; run++) {
      await world.settle(60_000);
      world.host.end(id, 1);
      await world.settle(1_000);
      expect(statusOf(world, id)).toBe('RUNNING');
    }
  });
});

describe('an action', () => {
  it('stop keeps the disk, and start uses it', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    expect((await world.pods.act(OWNER, id, 'stop')).status).toBe('EXITED');
    await world.settle();
    expect(world.host.get(id).seen).toMatchObject({ state: 'exited' });
    expect((await world.pods.act(OWNER, id, 'start')).status).toBe('STARTING');
    await world.settle();
    expect(world.host.get(id)).toMatchObject({ runsOnDisk: 2, seen: { state: 'running' } });
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', failures: 0 });
  });

  it('stop leaves a worker more time to finish than another pod', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    const worker = await world.createWorker();
    await world.settle();
    await world.pods.act(OWNER, id, 'stop');
    await world.pods.endWorker(worker.id);
    await world.settle();
    expect([world.host.graces.get(id), world.host.graces.get(worker.id)]).toEqual([10_000, 45_000]);
  });

  it('stop delays no other pod, however many do not end', async () => {
    const world = await openWorld();
    const ids: string[] = [];
    for (let pod = 0; pod < 20; pod++) ids.push(await startPod(world));
    world.host.isStubborn = true;
    await Promise.all(ids.map((id) => world.pods.act(OWNER, id, 'stop')));
    await world.settle();
    expect(statusOf(world, await startPod(world))).toBe('RUNNING');
  });

  it('start directly after stop leads to a run', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    await Promise.all([
      world.pods.act(OWNER, id, 'stop'),
      world.pods.act(OWNER, id, 'start').catch(() => {}),
    ]);
    await world.pods.act(OWNER, id, 'start').catch(() => {});
    await world.settle();
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', failures: 0 });
    expect(world.host.get(id).runsOnDisk).toBe(2);
  });

  it('restart wipes the disk and keeps the mount', async () => {
    const gpus = ['g1'];
    const world = await openWorld({ catalog: createCatalog(gpus) });
    const mounts = { persistent: { size: 10, path: '/data' } };
    const id = await startPod(world, { gpu: { id: GPU, count: 1 }, mounts });
    expect((await world.pods.act(OWNER, id, 'restart')).status).toBe('STARTING');
    await world.settle();
    expect(world.host.get(id)).toMatchObject({
      runsOnDisk: 1,
      seen: { state: 'running', generation: 2 },
    });
    expect(world.host.volumes).toContain(id);
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', gpus });
  });

  it('terminate leaves only the record, for a day', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1']) });
    const mounts = { persistent: { size: 10, path: '/data' } };
    const id = await startPod(world, { gpu: { id: GPU, count: 1 }, mounts });
    await world.pods.act(OWNER, id, 'terminate');
    await world.settle();
    expect(world.host.containers.size).toBe(0);
    expect(world.host.volumes.size).toBe(0);
    expect(world.pods.all()).toEqual([]);
    await world.restart();
    await world.settle(24 * 3_600_000 - 4_000);
    expect(await world.pods.find(OWNER, id)).toMatchObject({ status: 'TERMINATED', gpus: [] });
    await world.settle(6_000);
    await expect(world.pods.find(OWNER, id)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('terminate removes volumes even without a container', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1']) });
    const mounts = { persistent: { size: 10, path: '/data' } };
    const id = await startPod(world, { gpu: { id: GPU, count: 1 }, mounts });
    world.setCut({ at: 2, side: 'before' });
    await world.pods.act(OWNER, id, 'restart');
    await world.settle();
    expect(world.host.containers.size).toBe(0);
    await world.pods.act(OWNER, id, 'terminate');
    await world.restart();
    await world.settle();
    expect(world.host.volumes.size).toBe(0);
  });

  it('terminate continues until the container is gone', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    world.host.isSlow = true;
    await world.pods.act(OWNER, id, 'terminate');
    await world.settle(5_000);
    expect(await world.pods.find(OWNER, id)).toMatchObject({ removed: false });
    world.host.isSlow = false;
    await world.settle(5_000);
    expect(world.host.containers.size).toBe(0);
    expect(await world.pods.find(OWNER, id)).toMatchObject({ removed: true });
  });

  it('takes effect at once, even if the engine is unavailable', async () => {
    const world = await openWorld();
    const id = await startPod(world);
    world.host.trouble = new EngineError('unavailable', 'the engine is away');
    await world.pods.act(OWNER, id, 'terminate');
    await world.settle(30_000);
    expect(statusOf(world, id)).toBe('TERMINATED');
    world.host.trouble = undefined;
    await world.settle(15_000);
    expect(world.host.containers.size).toBe(0);
  });
});

describe('GPUs', () => {
  const two = { gpu: { id: GPU, count: 2 } };
  const one = { gpu: { id: GPU, count: 1 } };

  it('are awaited with the reason and assigned when another pod releases them', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1', 'g2']) });
    const first = await startPod(world, two);
    const second = await startPod(world, one);
    expect(world.pods.live.get(second)).toMatchObject({
      status: 'PROVISIONING',
      reason: expect.stringContaining(`1 of ${GPU}`),
    });
    await world.pods.act(OWNER, first, 'stop');
    await world.settle();
    expect(world.pods.live.get(second)).toMatchObject({ status: 'RUNNING', reason: null });
    expect(world.pods.live.get(first)?.gpus).toEqual([]);
    expect(world.host.get(second).spec.gpus).toEqual(world.pods.live.get(second)?.gpus);
  });

  it('are others when a stopped pod starts again, if the engine can do that', async () => {
    const world = await openWorld({
      engine: 'process',
      catalog: createCatalog(['g1', 'g2', 'g3']),
    });
    const id = await startPod(world, { ...two, args: 'run' });
    await world.pods.act(OWNER, id, 'stop');
    await world.settle();
    await startPod(world, { ...one, args: 'run' });
    await world.pods.act(OWNER, id, 'start');
    await world.settle();
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', gpus: ['g2', 'g3'] });
    const { runsOnDisk, seen } = world.host.get(id);
    expect({ runsOnDisk, gpus: seen.gpus }).toEqual({ runsOnDisk: 2, gpus: ['g2', 'g3'] });
    world.host.end(id, 3);
    await world.settle(2_000);
    await world.restart();
    await world.settle();
    expect(world.pods.live.get(id)?.gpus).toEqual(['g2', 'g3']);
    expect(world.host.get(id)).toMatchObject({ runsOnDisk: 3, seen: { gpus: ['g2', 'g3'] } });
  });

  it('are awaited by a stopped pod that starts again, with the reason', async () => {
    const world = await openWorld({ engine: 'process', catalog: createCatalog(['g1']) });
    const id = await startPod(world, { ...one, args: 'run' });
    await world.pods.act(OWNER, id, 'stop');
    await world.settle();
    const second = await startPod(world, { ...one, args: 'run' });
    await world.pods.act(OWNER, id, 'start');
    await world.settle();
    expect(world.pods.live.get(id)).toMatchObject({
      status: 'PROVISIONING',
      reason: `it waits for GPUs: 1 of ${GPU} are not free`,
    });
    await world.pods.act(OWNER, second, 'terminate');
    await world.settle();
    expect(world.pods.live.get(id)).toMatchObject({ status: 'RUNNING', gpus: ['g1'] });
  });

  it('refuse the start of a stopped pod if the machine has too few by now', async () => {
    const gpus = ['g1', 'g2'];
    const world = await openWorld({ engine: 'process', catalog: createCatalog(gpus) });
    const id = await startPod(world, { ...two, args: 'run' });
    await world.pods.act(OWNER, id, 'stop');
    await world.settle();
    gpus.pop();
    await expect(world.pods.act(OWNER, id, 'start')).rejects.toMatchObject({
      code: 'invalid',
      message: `gpu.count: there are 1 of ${GPU} in all`,
    });
    expect(world.pods.live.get(id)?.status).toBe('EXITED');
  });

  it('are those of the container when it restarts, if the engine can do no other', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1', 'g2']) });
    const first = await startPod(world, one);
    await world.pods.act(OWNER, first, 'stop');
    await world.settle();
    const second = await startPod(world, one);
    expect(world.pods.live.get(second)?.gpus).toEqual(['g1']);
    await world.pods.act(OWNER, first, 'start');
    await world.settle();
    expect(world.pods.live.get(first)).toMatchObject({
      status: 'PROVISIONING',
      reason: expect.stringContaining('were created with'),
    });
    await world.pods.act(OWNER, second, 'terminate');
    await world.settle();
    expect(world.pods.live.get(first)).toMatchObject({ status: 'RUNNING', gpus: ['g1'] });
  });

  it('are never assigned to two pods, however many ask at once', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1', 'g2', 'g3']) });
    await Promise.all(Array.from({ length: 6 }, () => world.create(one)));
    await world.settle(5_000);
    const held = world.pods.all().flatMap(({ gpus }) => gpus);
    expect(held.sort()).toEqual(['g1', 'g2', 'g3']);
    expect(world.pods.heldGpus()).toEqual(new Set(held));
  });
});

describe('an orphaned container', () => {
  it('is removed at the start, and its volumes are kept', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1']) });
    const id = await startPod(world, {
      gpu: { id: GPU, count: 1 },
      mounts: { persistent: { size: 10, path: '/data' } },
    });
    await world.store.write((tx) => tx.removeResource({ kind: 'pod', id }));
    await world.restart();
    await world.settle();
    expect(world.host.containers.size).toBe(0);
    expect(world.host.volumes).toContain(id);
  });

  it('is removed with its volumes if its pod has ended', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1']) });
    const mounts = { persistent: { size: 10, path: '/data' } };
    const id = await startPod(world, { gpu: { id: GPU, count: 1 }, mounts });
    const { spec } = world.host.get(id);
    await world.pods.act(OWNER, id, 'terminate');
    await world.settle();
    world.host.create(spec);
    await world.settle(2_000);
    expect(world.host.containers.size).toBe(0);
    expect(world.host.volumes.size).toBe(0);
  });

  it('is not a container that was listed while its pod was ending', async () => {
    const warn = vi.fn();
    const world = await openWorld({ reconciler: { log: { ...silentLog, warn } } });
    const id = await startPod(world);
    const listed = await world.engine.list();
    await world.pods.act(OWNER, id, 'terminate');
    await world.settle();
    world.engine.list = async () => listed;
    await world.settle(2_000);
    expect(warn).not.toHaveBeenCalled();
  });

  it('does not prevent the removal of others if it cannot be removed', async () => {
    const world = await openWorld();
    const ids = [await startPod(world), await startPod(world)];
    for (const id of ids) {
      await world.store.write((tx) => tx.removeResource({ kind: 'pod', id }));
    }
    const remove = world.host.remove.bind(world.host);
    world.host.remove = (id, volumes) => {
      if (id === ids[0]) throw new EngineError('unavailable', 'it is stuck');
      remove(id, volumes);
    };
    await world.restart();
    await world.settle();
    expect([...world.host.containers.keys()]).toEqual([ids[0]]);
  });
});
