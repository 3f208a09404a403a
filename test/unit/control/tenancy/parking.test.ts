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

describe('spare workers', () => {
  const TWO = { gpus: makeGpus(GPU, 2) };
  const listParked = (world: FleetWorld, id: string) =>
    world.listPods(id).filter(({ parked }) => parked);
  const isComing = (world: FleetWorld, id: string) =>
    world.listPods(id).some(({ parked, spare }) => spare && !parked);

  it('start without load, are parked, and stay beyond parkSeconds', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1, parkSeconds: 10 });
    await world.until(() => listParked(world, id).length === 1, 20_000);
    const [pod] = world.listPods(id);
    expect(pod).toMatchObject({ gpus: [], parked: { gpus: [`${GPU}-0`] } });
    await world.run(60_000);
    expect(world.listPods(id)).toMatchObject([{ id: pod?.id }]);
    const [started] = (await world.explain(id)).filter(({ cause }) => cause === 'spare');
    expect(started?.reason).toBe('spareWorkers is 1, 0 parked: starting 1 spare worker');
    expect(started && decide(started.input)).toMatchObject({ startSpares: 1 });
  });

  it('are woken by a job, and replaced while it runs', async () => {
    const world = await openWorld(TWO);
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1 });
    await world.until(() => listParked(world, id).length === 1, 20_000);
    const [spare] = world.listPods(id);
    await world.submit(id);
    await world.until(async () => (await world.countJobs(id)).completed === 1, 2_000);
    await world.until(() => listParked(world, id).some((pod) => pod.id !== spare?.id), 20_000);
    expect(world.listPods(id).find((pod) => pod.id === spare?.id)?.gpus).toHaveLength(1);
  });

  it('take no job before they are parked, though all workers are busy', async () => {
    const world = await openWorld({ ...TWO, bootMs: 1_000, jobMs: 500 });
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1 });
    await world.submit(id, 40);
    await world.until(() => listParked(world, id).length === 1, 20_000);
    const [spare] = listParked(world, id);
    expect(world.worker(spare?.id ?? '').finished).toBe(0);
    expect((await world.countJobs(id)).inQueue).toBeGreaterThan(0);
  });

  it('that still start take the job that comes', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1 });
    await world.until(() => isComing(world, id), 5_000);
    const [spare] = world.listPods(id);
    await world.submit(id);
    await world.until(async () => (await world.countJobs(id)).completed === 1, 7_000);
    await world.run(1_000);
    expect(world.listPods(id)).toMatchObject([{ id: spare?.id, gpus: [`${GPU}-0`] }]);
    expect(world.listPods(id)[0]?.parked).toBeUndefined();
  });

  it('are woken by a job that comes while they are being parked', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1 });
    await world.until(() => isComing(world, id), 5_000);
    const [spare] = world.listPods(id);
    await world.run(5_000);
    const worker = world.worker(spare?.id ?? '');
    while (worker.isResident) await world.clock.advance(1);
    await world.submit(id);
    await world.until(async () => (await world.countJobs(id)).completed === 1, 3_000);
    expect(world.listPods(id)).toMatchObject([{ id: spare?.id }]);
  });

  it('that still start give their GPU up to a job of another endpoint', async () => {
    const world = await openWorld({ bootMs: 30_000 });
    const id = await world.createEndpoint({ ...ON_GPU, name: 'chat', spareWorkers: 1 });
    await world.until(() => isComing(world, id), 5_000);
    const [spare] = world.listPods(id);
    const image = await world.createEndpoint({ ...ON_GPU, name: 'image' });
    await world.submit(image);
    await world.until(() => world.listPods(image).some(({ gpus }) => gpus.length > 0), 2_000);
    expect(world.listPods(id)).toEqual([]);
    const [given] = (await world.explain(id)).filter(({ cause }) => cause === 'gives_way');
    expect(given).toMatchObject({ drain: [spare?.id] });
  });

  it('that still start are spare over a restart of the platform', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1 });
    await world.until(() => isComing(world, id), 5_000);
    await world.leave();
    await world.start();
    const [spare] = world.listPods(id);
    await world.until(() => listParked(world, id).length === 1, 20_000);
    expect(world.listPods(id)).toMatchObject([{ id: spare?.id }]);
  });

  it('are not started again and again if they cannot be parked', async () => {
    const world = await FleetWorld.open({ gpus: makeGpus(GPU, 1) });
    onTestFinished(() => world.close());
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1 });
    await world.run(120_000);
    const all = await world.explain(id);
    expect(all.filter(({ startSpares }) => startSpares)).toHaveLength(1);
    expect(all[0]?.reason).toContain('could not be parked: its model offers no way');
    expect(world.listPods(id)).toEqual([]);
  });

  it('that crash are started again after growing pauses', async () => {
    const world = await openWorld({ bootMs: 60_000 });
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1 });
    for (let n = 0; n < 3; n++) {
      await world.until(() => world.listRunning().length === 1, 60_000);
      world.host.end(world.listRunning()[0] ?? '', 1);
      await world.run(500);
    }
    const [last] = (await world.explain(id)).filter(({ startSpares }) => startSpares);
    expect(last?.input.crashes.streak).toBe(2);
  });

  it('that end while they are being parked are started again after growing pauses', async () => {
    const world = await openWorld({ bootMs: 1_000, parkMs: 10_000 });
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 1 });
    for (const pauseMs of [60_000, 120_000]) {
      await world.until(() => world.listRunning().length === 1, 5_000);
      await world.run(2_000);
      world.host.end(world.listRunning()[0] ?? '', 137);
      await world.run(pauseMs - 2_000);
      expect(world.listRunning()).toEqual([]);
    }
    const [last] = await world.explain(id);
    expect(last?.reason).toContain('the last spare worker has ended');
    expect(last?.input.crashes.streak).toBe(0);
  });

  it('are as many as fit the memory of the host', async () => {
    const world = await openWorld({ ...TWO, bootMs: 1_000, parkMemory: 1 });
    const id = await world.createEndpoint({ ...ON_GPU, spareWorkers: 3 });
    await world.run(60_000);
    expect(listParked(world, id)).toHaveLength(1);
    expect((await world.explain(id))[0]?.reason).toContain('the host has too little memory');
  });

  it('say why there are none', async () => {
    const world = await openWorld();
    const none = await world.createEndpoint({ name: 'cpu', spareWorkers: 1 });
    await world.run(1_000);
    const [last] = await world.explain(none);
    expect(last?.reason).toContain('none starts: workers without a GPU are never parked');
  });
});
