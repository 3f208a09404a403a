// Endpoints take turns on GPUs: queue, pods and fleet together, in time that the test drives.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { decide } from '../../../../src/control/scaling/scaler.ts';
import { beginRollout } from '../../../../src/control/versions/rollout.ts';
import { OWNER } from '../../../../src/store/store.ts';
import { FleetWorld, type FleetWorldOptions } from '../../../support/containers/fleet-world.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';

const HOUR_MS = 3_600_000;
const GPU = 'NVIDIA L4';
const ON_GPU = { gpuTypeIds: [GPU], idleTimeout: 3_600, workersMax: 1 };

async function openWorld(gpus: number, options?: FleetWorldOptions): Promise<FleetWorld> {
  const world = await FleetWorld.open({ gpus: makeGpus(GPU, gpus), jobMs: 100, ...options });
  onTestFinished(() => world.close());
  return world;
}

/** Two endpoints; the first one has an idle worker on the only GPU. */
async function openIdle(changes: object = {}) {
  const world = await openWorld(1);
  const chat = await world.createEndpoint({ ...ON_GPU, name: 'chat', ...changes });
  const image = await world.createEndpoint({ ...ON_GPU, name: 'image' });
  await world.submit(chat);
  await world.run(30_000);
  return { world, chat, image };
}

async function listCauses(world: FleetWorld, id: string): Promise<string[]> {
  return (await world.explain(id)).map(({ cause }) => cause);
}

describe('an idle worker', () => {
  it('gives way at once to the job of another endpoint', async () => {
    const { chat, image, world } = await openIdle();
    await world.submit(image);
    await world.until(async () => (await world.countJobs(image)).completed === 1, 1_500);
    expect(world.listPods(chat)).toEqual([]);
    const given = (await world.explain(chat)).find(({ cause }) => cause === 'gives_way');
    expect(given?.reason).toBe(
      'jobs of endpoint image wait for a GPU, and this endpoint has idle workers: draining 1 worker, 0 of at most 1',
    );
    expect(given && decide(given.input)).toMatchObject({ cause: 'gives_way', drain: given?.drain });
  });

  it('of a minimum does not give way', async () => {
    const { chat, image, world } = await openIdle({ workersMin: 1 });
    await world.submit(image);
    await world.run(60_000);
    expect(world.listPods(chat)).toHaveLength(1);
    expect(await listCauses(world, chat)).not.toContain('gives_way');
  });

  it('of a minimum gives way if its endpoint yields, and comes back when the GPU is free', async () => {
    const { chat, image, world } = await openIdle({ workersMin: 1, yields: true });
    await world.platform.endpoints.update(OWNER, image, { idleTimeout: 10 });
    await world.submit(image);
    await world.until(async () => (await world.countJobs(image)).completed === 1, 1_500);
    await world.run(5_000);
    expect(world.listPods(image)).toHaveLength(1);
    await world.until(() => world.listPods(chat).length === 1, 10_000);
    expect(world.listPods(image)).toEqual([]);
  });

  it('is watched closely, and the endpoints that wait for it are not: there may be many', async () => {
    const { image, world } = await openIdle({ workersMin: 1 });
    await world.submit(image);
    const passes = vi.spyOn(world.platform.pods, 'findObstacle');
    await world.run(10_000);
    expect(passes.mock.calls.filter(([, id]) => id === image).length).toBeLessThan(30);
  });

  it('stays for its shortest time of residence', async () => {
    const { chat, image, world } = await openIdle({ minResidenceMs: 60_000 });
    await world.submit(image);
    await world.run(25_000);
    expect(world.listPods(chat)).toHaveLength(1);
    await world.until(async () => (await world.countJobs(image)).completed === 1, 10_000);
  });

  it('stays if another GPU is free, or a job waits for another type', async () => {
    const world = await openWorld(2, { gpus: [...makeGpus(GPU, 2), ...makeGpus('NVIDIA T4', 1)] });
    const create = async (name: string, type: string) => {
      const id = await world.createEndpoint({ ...ON_GPU, name, gpuTypeIds: [type], workersMin: 1 });
      await world.run(3_000);
      return id;
    };
    const chat = await world.createEndpoint({ ...ON_GPU, name: 'chat' });
    await world.submit(chat);
    await world.run(3_000);
    const image = await create('image', GPU);
    await create('small', 'NVIDIA T4');
    const waiting = await create('waiting', 'NVIDIA T4');
    await world.submit(image);
    await world.submit(waiting);
    await world.run(10_000);
    expect(world.listPods(chat)).toHaveLength(1);
  });

  it('is the one that was idle for longest', async () => {
    const world = await openWorld(2);
    const first = await world.createEndpoint({ ...ON_GPU, name: 'first' });
    const second = await world.createEndpoint({ ...ON_GPU, name: 'second' });
    await world.submit(second);
    await world.run(5_000);
    await world.submit(first);
    await world.run(5_000);
    const third = await world.createEndpoint({ ...ON_GPU, name: 'third' });
    await world.submit(third);
    await world.until(async () => (await world.countJobs(third)).completed === 1, 1_500);
    expect(world.listPods(first)).toHaveLength(1);
    expect(world.listPods(second)).toEqual([]);
  });

  it('gives the GPU to the endpoint that waits, though its own gets a job meanwhile', async () => {
    const { chat, image, world } = await openIdle();
    await world.submit(image);
    await world.until(async () => (await listCauses(world, chat)).includes('gives_way'), 1_500);
    await world.submit(chat);
    await world.until(async () => (await world.countJobs(image)).completed === 1, 1_500);
    await world.until(async () => (await world.countJobs(chat)).completed === 2, 5_000);
    expect(await world.countJobs(chat)).toMatchObject({ retried: 0, failed: 0 });
  });

  it('keeps a job that it got in time', async () => {
    const { chat, image, world } = await openIdle();
    await Promise.all([world.submit(image), world.submit(chat)]);
    await world.run(5_000);
    expect(await world.countJobs(image)).toMatchObject({ completed: 1 });
    expect(await world.countJobs(chat)).toMatchObject({ completed: 2, retried: 0, failed: 0 });
  });
});

describe('busy endpoints', () => {
  it('take turns, and no job is interrupted', async () => {
    const world = await openWorld(1, { jobMs: 500 });
    const chat = await world.createEndpoint({ ...ON_GPU, name: 'chat' });
    const image = await world.createEndpoint({ ...ON_GPU, name: 'image' });
    await world.submit(chat, 100);
    await world.run(5_000);
    await world.submit(image, 20);
    await world.until(async () => (await world.countJobs(image)).completed === 20, 60_000);
    expect((await world.countJobs(chat)).inQueue).toBeGreaterThan(0);
    await world.until(async () => (await world.countJobs(chat)).completed === 100, 120_000);
    for (const id of [chat, image]) {
      expect(await world.countJobs(id)).toMatchObject({ retried: 0, failed: 0 });
    }
    const turns = (await world.explain(chat)).filter(({ cause }) => cause === 'gives_way');
    expect(turns.length).toBeGreaterThan(0);
    expect(turns.length).toBeLessThan(40);
    for (const { input, ...decision } of turns)
      expect(decide(input)).toMatchObject({ drain: decision.drain });
  });

  it('say who holds the GPU, and until when', async () => {
    const world = await openWorld(1, { jobMs: HOUR_MS });
    const long = { ...ON_GPU, minResidenceMs: 50_000 };
    const chat = await world.createEndpoint({ ...long, name: 'chat' });
    const image = await world.createEndpoint({ ...ON_GPU, name: 'image' });
    await world.submit(chat);
    await world.run(10_000);
    await world.submit(image);
    await world.run(1_000);
    const { message, until = 0 } = await world.explainWait(image);
    expect(message).toContain(
      `A busy worker of endpoint chat holds one; its turn ends at ${new Date(until).toISOString()}`,
    );
    await world.run(until - world.clock.now() + 1_000);
    expect((await world.explainWait(image)).message).toContain(
      'A worker of endpoint chat gives one up as soon as its jobs have ended',
    );
  });

  it('share several GPUs without changing places all the time', async () => {
    const world = await openWorld(2, { jobMs: 300 });
    const scaler = { type: 'REQUEST_COUNT', perWorker: 1 } as const;
    const wide = { ...ON_GPU, workersMax: 2, scaler };
    const chat = await world.createEndpoint({ ...wide, name: 'chat' });
    await world.submit(chat, 400);
    await world.run(5_000);
    expect(world.listPods(chat)).toHaveLength(2);
    const image = await world.createEndpoint({ ...wide, name: 'image' });
    await world.submit(image, 200);
    await world.run(30_000);
    expect([world.listPods(chat).length, world.listPods(image).length]).toEqual([1, 1]);
    const turns = async (id: string) =>
      (await listCauses(world, id)).filter((cause) => cause === 'gives_way').length;
    expect((await turns(chat)) + (await turns(image))).toBeLessThanOrEqual(2);
  });
});

describe('the check worker of a version', () => {
  it('waits for no idle timeout of another endpoint', async () => {
    const { chat, image, world } = await openIdle();
    expect(world.listPods(chat)).toHaveLength(1);
    await world.platform.endpoints.remove(OWNER, image);
    const id = await world.createEndpoint({ ...ON_GPU, name: 'new', source: 'VERSION' });
    await world.platform.endpoints.changeDeployment(id, (deployment) => ({
      ...deployment,
      ...beginRollout(deployment, { version: 1, timeoutMs: 60_000, now: world.clock.now() }),
      lastVersion: 1,
    }));
    await world.until(() => world.listPods(id).length === 1, 3_000);
    expect(world.listPods(chat)).toEqual([]);
  });
});
