// The reason why a job waits agrees with what the scaler does: queue, pods and fleet together.
import { expect, it, onTestFinished } from 'vitest';
import { OWNER } from '../../../../src/store/store.ts';
import { podCreation } from '../../../../src/wire/resources/pod.ts';
import { FleetWorld, type FleetWorldOptions } from '../../../support/containers/fleet-world.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';

const HOUR_MS = 3_600_000;

async function openWorld(options?: FleetWorldOptions): Promise<FleetWorld> {
  const world = await FleetWorld.open(options);
  onTestFinished(() => world.close());
  return world;
}

async function lastCause(world: FleetWorld, id: string) {
  return (await world.explain(id))[0]?.cause;
}

it('a worker that starts, and since when', async () => {
  const world = await openWorld({ bootMs: 60_000 });
  const id = await world.createEndpoint();
  await world.run(5_000);
  await world.submit(id);
  await world.run(10_000);
  const [pod] = world.listPods(id);
  expect(await world.explainWait(id)).toMatchObject({
    ...{ code: 'worker_starting', since: pod?.createdAt },
    message: expect.stringMatching(/^A worker is starting \(\d+ s so far\)/),
  });
});

it('workers that crash, with the last error and the next start', async () => {
  const world = await openWorld();
  const templateId = await world.createTemplate({ args: 'exit 7' });
  const id = await world.createEndpoint({ templateId });
  await world.submit(id);
  await world.run(10_000);
  const { code, message, until } = await world.explainWait(id);
  expect(code).toBe('crashed');
  expect(message).toMatch(/^\d workers in a row.*it exited with code 7: printed by pod_/);
  expect(until).toBeGreaterThan(world.clock.now());
  expect(await lastCause(world, id)).toBe('crashed');
});

it('workers that cannot load the handler, until it is fixed', async () => {
  const world = await openWorld({ jobMs: HOUR_MS });
  const templateId = await world.createTemplate({ args: 'exit 5' });
  const id = await world.createEndpoint({ templateId, workersMax: 1 });
  await world.submit(id, 2);
  await world.run(10_000);
  expect(await world.explainWait(id)).toMatchObject({ code: 'handler_not_loaded' });
  await world.platform.templates.update(OWNER, templateId, { args: '' });
  await world.run(10_000);
  expect(await world.explainWait(id)).toMatchObject({ code: 'at_maximum' });
});

it('workers that are all busy, before the scaler adds one', async () => {
  const world = await openWorld({ jobMs: HOUR_MS });
  const scaler = { type: 'QUEUE_DELAY', seconds: 600 } as const;
  const id = await world.createEndpoint({ workersMax: 3, scaler });
  await world.submit(id, 2);
  await world.run(10_000);
  expect(await world.explainWait(id)).toEqual({
    code: 'workers_busy',
    message:
      'The only worker runs other jobs. Scaler: 1 job waiting, 1 running: 1 worker is enough.',
  });
});

it('names the idle worker that keeps the GPU', async () => {
  const world = await openWorld({ gpus: makeGpus('NVIDIA L4', 1) });
  const gpuTypeIds = ['NVIDIA L4'];
  await world.createEndpoint({ name: 'chat', gpuTypeIds, workersMin: 1 });
  await world.run(5_000);
  const id = await world.createEndpoint({ gpuTypeIds });
  await world.submit(id);
  await world.run(5_000);
  const reason = await world.explainWait(id);
  expect(reason).toMatchObject({
    code: 'no_gpu',
    message: expect.stringContaining('An idle worker of endpoint chat holds one and keeps it'),
  });
  expect(reason).not.toHaveProperty('until');
  expect(await lastCause(world, id)).toBe('no_gpu');
});

it('names the pod that keeps the GPU', async () => {
  const world = await openWorld({ gpus: makeGpus('NVIDIA L4', 1) });
  const creation = podCreation.parse({
    ...{ name: 'notebook', image: 'worker', gpu: { id: 'NVIDIA L4', count: 1 } },
  });
  await world.platform.pods.create(OWNER, creation);
  await world.run(1_000);
  const id = await world.createEndpoint({ gpuTypeIds: ['NVIDIA L4'] });
  await world.submit(id);
  await world.run(5_000);
  expect((await world.explainWait(id)).message).toContain('Pod notebook holds one');
});

it('says until when an idle worker holds the GPU', async () => {
  const world = await openWorld({ gpus: makeGpus('NVIDIA L4', 1), jobMs: 100 });
  const gpuTypeIds = ['NVIDIA L4'];
  const takes = { name: 'chat', gpuTypeIds, idleTimeout: 600, minResidenceMs: 60_000 };
  const chat = await world.createEndpoint(takes);
  await world.submit(chat);
  await world.run(10_000);
  const id = await world.createEndpoint({ gpuTypeIds });
  await world.submit(id);
  await world.run(5_000);
  const { message, until = 0 } = await world.explainWait(id);
  expect(message).toContain(`endpoint chat holds one until ${new Date(until).toISOString()}.`);
  await world.run(until - world.clock.now() + 5_000);
  expect(world.listPods(chat)).toEqual([]);
  expect(await world.countJobs(id)).toMatchObject({ completed: 1 });
});

it('a full machine', async () => {
  const world = await openWorld({ limits: { memoryGb: 5, vcpus: 100, diskGb: 1_000 } });
  await world.createEndpoint({ workersMin: 1 });
  await world.run(5_000);
  const id = await world.createEndpoint();
  await world.submit(id);
  await world.run(5_000);
  const { code, message } = await world.explainWait(id);
  expect(code).toBe('no_capacity');
  expect(message).toContain('memory: 4 GB wanted, 1 GB of 5 GB free');
});

it('an image that is being pulled, in the record of the pod too', async () => {
  const world = await openWorld();
  world.host.pullMs = 60_000;
  const id = await world.createEndpoint();
  await world.submit(id);
  await world.run(10_000);
  expect(world.listPods(id)).toMatchObject([{ reason: 'its image is being pulled: worker' }]);
  expect(await world.explainWait(id)).toMatchObject({ code: 'image_pull' });
  await world.until(async () => (await world.countJobs(id)).completed === 1);
});

it('a version that nobody has deployed', async () => {
  const world = await openWorld();
  const id = await world.createEndpoint({ source: 'VERSION' });
  await world.submit(id);
  await world.run(1_000);
  expect(await world.explainWait(id)).toMatchObject({ code: 'no_version' });
});

it('nothing any more once the endpoint is deployed no longer', async () => {
  const world = await openWorld();
  const id = await world.createEndpoint();
  await world.submit(id);
  await world.run(1_000);
  await world.platform.endpoints.remove(OWNER, id);
  await world.run(1_000);
  expect(world.platform.fleet.scalingOf(id)).toBe('none');
});
