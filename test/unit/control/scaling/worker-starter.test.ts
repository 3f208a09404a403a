// Workers for which a cluster has no capacity, or no image: the next GPU type, and the reason why jobs wait.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { PodState } from '../../../../src/control/pods/pod-state.ts';
import {
  CROWDED_MS,
  chooseGpuTypes,
  countFreeGpus,
} from '../../../../src/control/scaling/worker-starter.ts';
import { FleetWorld } from '../../../support/containers/fleet-world.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';
import { states } from '../../../support/containers/pod-states.ts';

const DEVICES: Record<string, string[]> = { A: ['a0', 'a1', 'a2'], B: ['b0'] };

function podOf(gpu: string, changes: Partial<PodState>): PodState {
  const { spec, ...pod } = states.provisioning;
  return { ...pod, ...changes, spec: { ...spec, gpu: { id: gpu, count: 1 } } };
}

function countFree(...pods: PodState[]) {
  return Object.fromEntries(
    countFreeGpus(['A', 'B'], { devicesOf: (type) => DEVICES[type] ?? [], pods }),
  );
}

describe('free GPUs', () => {
  it('are those without a pod', () => {
    expect(countFree()).toEqual({ A: 3, B: 1 });
    expect(countFree(podOf('A', { gpus: ['a1'] }), podOf('B', { gpus: ['b0'] }))).toEqual({
      ...{ A: 2, B: 0 },
    });
  });

  it('exclude those that a pod is about to get', () => {
    const waiting = podOf('A', { gpus: [], desired: 'running' });
    expect(countFree(waiting)).toEqual({ A: 2, B: 1 });
    expect(countFree(waiting, waiting, waiting, waiting)).toEqual({ A: 0, B: 1 });
    expect(countFree({ ...waiting, desired: 'stopped' })).toEqual({ A: 3, B: 1 });
  });
});

it('gives a worker the first type with a free device', () => {
  const free = new Map([...Object.entries({ A: 1, B: 0, C: 2 })]);
  expect(chooseGpuTypes(free, 2)).toEqual(['A', 'C']);
  expect(chooseGpuTypes(free, 9)).toEqual(['A', 'C', 'C']);
  expect(chooseGpuTypes(new Map(), 1)).toEqual([]);
});

const isOn = (type: string) => (gpus: readonly string[]) => gpus.some((gpu) => gpu.includes(type));

async function openWorld(): Promise<FleetWorld> {
  const world = await FleetWorld.open({ gpus: [...makeGpus('Big', 1), ...makeGpus('Small', 1)] });
  onTestFinished(() => world.close());
  return world;
}

function listTypes(world: FleetWorld, id: string): (string | undefined)[] {
  return world.listPods(id).map(({ spec }) => spec.gpu?.id);
}

describe('an endpoint whose GPU type has no capacity in the cluster', () => {
  it('moves to its next type at once, and serves its jobs there', async () => {
    const world = await openWorld();
    world.host.hasRoom = ({ gpus }) => !isOn('Big')(gpus);
    const id = await world.createEndpoint({ gpuTypeIds: ['Big', 'Small'] });
    await world.submit(id, 1);
    await world.until(async () => (await world.countJobs(id)).completed === 1, 30_000);
    expect(listTypes(world, id)).toEqual(['Small']);
  });

  it('keeps the worker of its last type waiting, and its jobs say why', async () => {
    const world = await openWorld();
    world.host.hasRoom = () => false;
    const id = await world.createEndpoint({ gpuTypeIds: ['Big', 'Small'] });
    await world.submit(id, 1);
    await world.run(20_000);
    expect(listTypes(world, id)).toEqual(['Small']);
    expect(await world.explainWait(id)).toMatchObject({
      code: 'no_capacity',
      message: expect.stringContaining('0/1 nodes are available'),
    });
    const [last] = world.listPods(id);
    await world.run(20_000);
    expect(world.listPods(id)[0]?.id).toBe(last?.id);
  });

  it('tries its first type again after a while', async () => {
    const world = await openWorld();
    world.host.hasRoom = () => false;
    const id = await world.createEndpoint({ gpuTypeIds: ['Big', 'Small'] });
    await world.submit(id, 1);
    await world.run(10_000);
    world.host.hasRoom = ({ gpus }) => isOn('Big')(gpus);
    await world.run(CROWDED_MS);
    await world.until(async () => (await world.countJobs(id)).completed === 1, 60_000);
  });
});

it('gives an image that cannot be pulled as the reason why jobs wait', async () => {
  const world = await openWorld();
  const id = await world.createEndpoint({ gpuTypeIds: ['Big'] });
  world.host.hasRoom = () => false;
  await world.submit(id, 1);
  await world.run(5_000);
  const [pod] = world.listPods(id);
  const message = 'its image cannot be pulled: back-off';
  world.host.change(pod?.id ?? '', { waiting: { cause: 'image', message, isFinal: false } });
  await world.run(5_000);
  expect(await world.explainWait(id)).toMatchObject({
    code: 'image_pull',
    message: expect.stringContaining('back-off'),
  });
  world.host.change(pod?.id ?? '', { waiting: { cause: 'image', message, isFinal: true } });
  await world.run(1_000);
  expect(await world.explainWait(id)).toMatchObject({
    code: 'crashed',
    message: expect.stringContaining('back-off'),
  });
});
