// Workers are parked instead of ended, and come back to their GPUs: queue, pods and fleet together, in time that the test drives.
import { describe, expect, it, onTestFinished } from 'vitest';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { decide } from '../../../../src/control/scaling/scaler.ts';
import { OWNER } from '../../../../src/store/store.ts';
import { FleetWorld, type FleetWorldOptions } from '../../../support/containers/fleet-world.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';

const GPU = 'NVIDIA L4';
const ON_GPU = { gpuTypeIds: [GPU], idleTimeout: 3_600, workersMax: 1, minResidenceMs: 0 };

async function openWorld(options?: FleetWorldOptions): Promise<FleetWorld> {
  const given = { gpus: makeGpus(GPU, 1), jobMs: 100, bootMs: 5_000, parkMs: 200, ...options };
  const world = await FleetWorld.open(given);
  onTestFinished(() => world.close());
  return world;
}

/** Two endpoints that share the GPU; `chat` is parked, `image` has the GPU. */
async function openParked(options?: FleetWorldOptions, changes: object = {}) {
  const world = await openWorld(options);
  const chat = await world.createEndpoint({ ...ON_GPU, name: 'chat', ...changes });
  const image = await world.createEndpoint({ ...ON_GPU, name: 'image', ...changes });
  await world.submit(chat);
  await world.run(20_000);
  const [pod] = world.listPods(chat);
  await world.submit(image);
  await world.until(async () => (await world.countJobs(image)).completed === 1, 10_000);
  return { world, chat, image, podId: pod?.id ?? '' };
}

const isParked = (world: FleetWorld, podId: string) =>
  world.platform.pods.all().some(({ id, parked }) => id === podId && parked !== undefined);

describe('a worker that can be parked', () => {
  it('is parked for the job of another endpoint, keeps its pod, and its GPU is free', async () => {
    const { chat, podId, world } = await openParked();
    expect(world.listPods(chat)).toMatchObject([
      { id: podId, status: 'RUNNING', gpus: [], parked: { gpus: [`${GPU}-0`], bytes: 1 } },
    ]);
    expect(world.worker(podId).isResident).toBe(false);
    const { pods } = world.platform;
    const record = await pods.show(await pods.find(OWNER, podId));
    expect(record).toMatchObject({ cost: 0, parked: { bytes: 1 } });
    const given = (await world.explain(chat)).find(({ cause }) => cause === 'gives_way');
    expect(given).toMatchObject({ park: [podId], drain: [] });
    expect(given?.reason).toContain('parking 1 worker, 0 of at most 1');
    expect(given && decide(given.input)).toMatchObject({ park: [podId] });
  });

  it('comes back in the time of a wake', async () => {
    const { chat, podId, world } = await openParked();
    await world.run(5_000);
    await world.submit(chat);
    await world.until(async () => (await world.countJobs(chat)).completed === 2, 2_000);
    expect(world.listPods(chat)).toMatchObject([{ id: podId, gpus: [`${GPU}-0`] }]);
    await world.run(1_000);
    expect(isParked(world, podId)).toBe(false);
    const woken = (await world.explain(chat)).find(({ wake }) => wake);
    expect(woken?.reason).toContain('waking 1 worker, 1 of at most 1');
    expect(await world.countJobs(chat)).toMatchObject({ retried: 0, failed: 0 });
  });

  it('comes back although another endpoint has started a worker: that one has the other GPU', async () => {
    const world = await openWorld({ gpus: makeGpus(GPU, 2) });
    const chat = await world.createEndpoint({ ...ON_GPU, name: 'chat', idleTimeout: 1 });
    const image = await world.createEndpoint({ ...ON_GPU, name: 'image' });
    await world.submit(chat);
    await world.until(() => world.listPods(chat).some(({ parked }) => parked), 20_000);
    const [pod] = world.listPods(chat);
    await world.submit(image);
    await world.until(async () => (await world.countJobs(image)).completed === 1, 20_000);
    await world.submit(chat);
    await world.until(async () => (await world.countJobs(chat)).completed === 2, 2_000);
    expect(world.listPods(chat)).toMatchObject([{ id: pod?.id }]);
  });

  it('changes places forty times, and no two models are on the GPU at once', async () => {
    const { chat, image, world } = await openParked();
    const before = world.listRunning();
    for (let n = 0; n < 20; n++) {
      for (const id of [chat, image]) {
        const { completed } = await world.countJobs(id);
        await world.submit(id);
        await world.until(async () => {
          world.listResidents();
          return (await world.countJobs(id)).completed === completed + 1;
        }, 20_000);
      }
    }
    expect(world.listRunning()).toHaveLength(2);
    expect(world.listRunning()).toContain(before[0]);
  });

  it('is parked when it has been idle, and is woken by the next job', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ ...ON_GPU, idleTimeout: 5 });
    await world.submit(id);
    await world.run(20_000);
    const [pod] = world.listPods(id);
    expect(pod).toMatchObject({ gpus: [], parked: { gpus: [`${GPU}-0`] } });
    await world.submit(id);
    await world.until(async () => (await world.countJobs(id)).completed === 2, 2_000);
    expect(world.listPods(id)).toMatchObject([{ id: pod?.id }]);
  });

  it('is woken though others wait for another type of GPU', async () => {
    const world = await openWorld({ gpus: [...makeGpus(GPU, 1), ...makeGpus('NVIDIA T4', 1)] });
    const other = { ...ON_GPU, gpuTypeIds: ['NVIDIA T4'], workersMin: 1 };
    await world.createEndpoint({ ...other, name: 'holds' });
    const id = await world.createEndpoint({ ...ON_GPU, idleTimeout: 5 });
    await world.submit(id);
    await world.run(20_000);
    const [pod] = world.listPods(id);
    expect(pod).toMatchObject({ parked: { gpus: [`${GPU}-0`] } });
    await world.submit(await world.createEndpoint({ ...other, name: 'waits' }));
    await world.run(2_000);
    await world.submit(id);
    await world.until(async () => (await world.countJobs(id)).completed === 2, 2_000);
    expect(world.listPods(id)).toMatchObject([{ id: pod?.id }]);
  });

  it('ends when it has been parked for parkSeconds', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ ...ON_GPU, idleTimeout: 5, parkSeconds: 60 });
    await world.submit(id);
    await world.run(30_000);
    expect(world.listPods(id)).toHaveLength(1);
    await world.run(60_000);
    expect(world.listPods(id)).toEqual([]);
    expect((await world.explain(id)).some(({ cause }) => cause === 'parked_ends')).toBe(true);
  });

  it('ends instead if its endpoint has no time for parked workers', async () => {
    const { chat, world } = await openParked({}, { parkSeconds: 0 });
    expect(world.listPods(chat)).toEqual([]);
  });

  it('makes space for the next one: the oldest ends', async () => {
    const world = await openWorld({ parkMemory: 2 });
    const ids: string[] = [];
    for (const name of ['a', 'b', 'c', 'd']) {
      const id = await world.createEndpoint({ ...ON_GPU, name });
      await world.submit(id);
      await world.until(async () => (await world.countJobs(id)).completed === 1, 20_000);
      await world.run(10_000);
      ids.push(id);
    }
    const kept = ids.map((id) => world.listPods(id).length);
    expect(kept).toEqual([0, 1, 1, 1]);
  });

  it('is not billed while it is parked', async () => {
    const { chat, podId, world } = await openParked();
    const readGpuMs = async () => {
      const { clock, platform, store } = world;
      const billing = new Billing({ store, clock, pods: platform.pods, nameOf: () => undefined });
      const range = { userId: OWNER, from: 0, to: clock.now() + 86_400_000 };
      const [row] = await billing.rows({ ...range, step: 'day', kind: 'endpoint', id: chat });
      return row?.gpuMs ?? 0;
    };
    await world.run(20_000);
    const before = await readGpuMs();
    expect(before).toBeGreaterThan(10_000);
    await world.run(60_000);
    expect(isParked(world, podId)).toBe(true);
    expect(await readGpuMs()).toBe(before);
  });
});

describe('a parked worker', () => {
  it('that dies is replaced by the next job, and nothing counts as failed', async () => {
    const { chat, podId, world } = await openParked();
    world.host.end(podId, 137);
    await world.run(2_000);
    expect(world.listPods(chat)).toEqual([]);
    await world.submit(chat);
    await world.until(async () => (await world.countJobs(chat)).completed === 2, 20_000);
    expect(await world.countJobs(chat)).toMatchObject({ retried: 0, failed: 0 });
    const crashed = (await world.explain(chat)).filter(({ cause }) => cause === 'crashed');
    expect(crashed).toEqual([]);
  });

  it('that dies while it wakes is replaced, and its job waits in its place', async () => {
    const { chat, podId, world } = await openParked({ parkMs: 2_000 });
    await world.run(5_000);
    await world.submit(chat);
    await world.until(() => {
      const pod = world.platform.pods.all().find(({ id }) => id === podId);
      return (pod?.gpus.length ?? 0) > 0;
    }, 10_000);
    world.host.end(podId, 137);
    await world.until(async () => (await world.countJobs(chat)).completed === 2, 30_000);
    expect(await world.countJobs(chat)).toMatchObject({ retried: 0, failed: 0 });
  });

  it('stays parked over a restart of the platform, and wakes after it', async () => {
    const { chat, podId, world } = await openParked();
    await world.leave();
    await world.start();
    await world.run(20_000);
    expect(isParked(world, podId)).toBe(true);
    await world.submit(chat);
    await world.until(async () => {
      world.listResidents();
      return (await world.countJobs(chat)).completed === 2;
    }, 20_000);
    expect(world.listPods(chat)).toMatchObject([{ id: podId }]);
  });

  it('is parked, not ended, though its platform has just started', async () => {
    const { chat, image, world } = await openParked();
    const before = world.listPods(image).map(({ id }) => id);
    await world.leave();
    await world.run(1_000);
    await world.start();
    await world.submit(chat);
    await world.until(async () => (await world.countJobs(chat)).completed === 2, 20_000);
    expect(world.listPods(image).map(({ id }) => id)).toEqual(before);
    expect(world.listPods(image)).toMatchObject([{ gpus: [] }]);
  });

  it('ends with its endpoint', async () => {
    const { chat, podId, world } = await openParked();
    await world.platform.endpoints.remove(OWNER, chat);
    await world.run(2_000);
    expect(world.listRunning()).not.toContain(podId);
  });
});

it('a busy worker is parked when its turn is over and its job has ended', async () => {
  const world = await openWorld({ jobMs: 500, bootMs: 1_000 });
  const chat = await world.createEndpoint({ ...ON_GPU, name: 'chat' });
  const image = await world.createEndpoint({ ...ON_GPU, name: 'image' });
  await world.submit(chat, 60);
  await world.run(4_000);
  await world.submit(image, 60);
  const isDone = async (id: string) => (await world.countJobs(id)).completed === 60;
  await world.until(async () => {
    world.listResidents();
    return (await isDone(chat)) && (await isDone(image));
  }, 200_000);
  for (const id of [chat, image]) {
    expect(await world.countJobs(id)).toMatchObject({ retried: 0, failed: 0 });
    expect(world.listPods(id)).toHaveLength(1);
  }
});
