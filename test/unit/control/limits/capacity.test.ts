// What pods together may ask of the machine, with real pods in a store.
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type Amounts,
  findShortage,
  limitAmounts,
} from '../../../../src/control/limits/capacity.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { CPU, createCatalog, GPU, PodWorld } from '../../../support/containers/pod-world.ts';

const LIMITS: Amounts = { memoryGb: 10, vcpus: 16, diskGb: 100 };

async function openWorld(limits = LIMITS) {
  const world = await PodWorld.open({ catalog: createCatalog(['g0']), pods: { limits } });
  onTestFinished(() => world.close());
  return world;
}

async function refusal(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return 'done';
  } catch (error) {
    if (error instanceof ProblemError) return `${error.status} ${error.code}: ${error.message}`;
    throw error;
  }
}

const FULL = '409 over_capacity: The machine has too little left for the pod:';

describe('a pod beyond the capacity', () => {
  it.each([
    [{ cpu: { ...CPU, memory: 7 } }, 'memory: 7 GB wanted, 6 GB of 10 GB free'],
    [{ cpu: { ...CPU, vcpuCount: 16, memory: 1 } }, 'vCPUs: 16 wanted, 14 of 16 free'],
    [{ disk: 81 }, 'disk: 81 GB wanted, 80 GB of 100 GB free'],
    [
      { gpu: { id: GPU, count: 1 }, disk: 71, mounts: { persistent: { size: 10, path: '/w' } } },
      'disk: 81 GB wanted, 80 GB of 100 GB free',
    ],
  ])('is refused with the numbers: %j', async (creation, numbers) => {
    const world = await openWorld();
    await world.create();
    expect(await refusal(world.create(creation))).toBe(
      `${FULL} ${numbers}. Ask for less, or stop another pod.`,
    );
    expect(world.pods.all()).toHaveLength(1);
  });

  it('is refused to exactly one of two that are asked for at once', async () => {
    const world = await openWorld();
    const all = await Promise.all([1, 2, 3].map(() => refusal(world.create())));
    expect(all.filter((end) => end === 'done')).toHaveLength(2);
  });

  it('is refused also as a worker, and every user counts', async () => {
    const world = await openWorld();
    await world.create({}, 'ann');
    await world.createWorker();
    expect(await refusal(world.createWorker())).toMatch(FULL);
    expect(await refusal(world.create({}, 'bob'))).toMatch(FULL);
  });
});

describe('what a pod holds', () => {
  it('is its disk alone while it is stopped; a start asks for the rest again', async () => {
    const world = await openWorld();
    const { id } = await world.create();
    await world.create();
    await world.settle();
    await world.pods.act('owner', id, 'stop');
    // Until it is down it holds its memory.
    expect(await refusal(world.create())).toMatch(FULL);
    await world.settle();
    const third = await world.create();
    expect(await refusal(world.pods.act('owner', id, 'start'))).toMatch(`${FULL} memory: 4 GB`);
    expect(await refusal(world.create({ cpu: { ...CPU, memory: 1 }, disk: 50 }))).toMatch(
      `${FULL} disk: 50 GB wanted, 40 GB of 100 GB free`,
    );
    await world.settle();
    await world.pods.act('owner', third.id, 'terminate');
    await world.settle();
    await world.pods.act('owner', id, 'start');
  });

  it('is what more of disk a change asks for, and nothing more for a restart', async () => {
    const world = await openWorld({ memoryGb: 4, vcpus: 2, diskGb: 30 });
    const { id } = await world.create();
    await world.settle();
    await world.pods.act('owner', id, 'restart');
    await world.settle();
    expect(await refusal(world.pods.update('owner', id, { disk: 31 }))).toBe(
      `${FULL} disk: 11 GB wanted, 10 GB of 30 GB free. Ask for less, or stop another pod.`,
    );
    expect((await world.pods.update('owner', id, { disk: 30 })).spec.disk).toBe(30);
    expect((await world.pods.update('owner', id, { name: 'b' })).spec.name).toBe('b');
  });

  it('is free as soon as it has ended by itself', async () => {
    const world = await openWorld({ memoryGb: 4, vcpus: 2, diskGb: 100 });
    const { id } = await world.create();
    await world.settle();
    world.host.end(id, 0);
    await world.settle();
    expect((await world.create()).id).not.toBe(id);
  });

  it('is there again after a restart of the platform', async () => {
    const world = await openWorld({ memoryGb: 4, vcpus: 2, diskGb: 100 });
    await world.create();
    await world.settle();
    await world.restart();
    expect(await refusal(world.create())).toMatch(FULL);
  });
});

it('promises processors and disk several times, memory once', () => {
  const machine = { memoryGb: 16, vcpus: 4, diskGb: 50 };
  const limits = limitAmounts(machine, { vcpus: 8, disk: 4 });
  expect(limits).toEqual({ memoryGb: 16, vcpus: 32, diskGb: 200 });
});

it('says nothing of what is not asked for, though there is too much of it', () => {
  const held = { memoryGb: 20, vcpus: 99, diskGb: 20 };
  const gpuPod = { memoryGb: 0, vcpus: 0, diskGb: 20 };
  expect(findShortage(gpuPod, held, LIMITS)).toBeUndefined();
});
