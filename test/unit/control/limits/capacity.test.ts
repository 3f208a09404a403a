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

const FULL = /^409 over_capacity: /;

/** The refusal names the resource and its numbers, in this order. */
function refusalWith(resource: string, ...numbers: number[]): RegExp {
  const words = [resource, ...numbers].map((each) => `\\b${each}\\b`);
  return new RegExp(`^409 over_capacity: .*${words.join('.*')}`);
}

describe('a pod beyond the capacity', () => {
  it.each([
    [{ cpu: { ...CPU, memory: 7 } }, refusalWith('memory', 7, 6, 10)],
    [{ cpu: { ...CPU, vcpuCount: 16, memory: 1 } }, refusalWith('vCPUs', 16, 14, 16)],
    [{ disk: 81 }, refusalWith('disk', 81, 80, 100)],
    [
      { gpu: { id: GPU, count: 1 }, disk: 71, mounts: { persistent: { size: 10, path: '/w' } } },
      refusalWith('disk', 81, 80, 100),
    ],
  ])('is refused with the numbers: %j', async (creation, refused) => {
    const world = await openWorld();
    await world.create();
    expect(await refusal(world.create(creation))).toMatch(refused);
    expect(world.pods.all()).toHaveLength(1);
  });

  it('is refused for exactly one of two simultaneous creations', async () => {
    const world = await openWorld();
    const all = await Promise.all([1, 2, 3].map(() => refusal(world.create())));
    expect(all.filter((end) => end === 'done')).toHaveLength(2);
  });

  it('is refused also as a worker, counting the pods of all users', async () => {
    const world = await openWorld();
    await world.create({}, 'ann');
    await world.createWorker();
    expect(await refusal(world.createWorker())).toMatch(FULL);
    expect(await refusal(world.create({}, 'bob'))).toMatch(FULL);
  });
});

describe('the capacity that a pod holds', () => {
  it('is only its disk while it is stopped, and a start asks for the rest again', async () => {
    const world = await openWorld();
    const { id } = await world.create();
    await world.create();
    await world.settle();
    await world.pods.act('owner', id, 'stop');
    // Until it is down it holds its memory.
    expect(await refusal(world.create())).toMatch(FULL);
    await world.settle();
    const third = await world.create();
    expect(await refusal(world.pods.act('owner', id, 'start'))).toMatch(refusalWith('memory', 4));
    const large = world.create({ cpu: { ...CPU, memory: 1 }, disk: 50 });
    expect(await refusal(large)).toMatch(refusalWith('disk', 50, 40, 100));
    await world.settle();
    await world.pods.act('owner', third.id, 'terminate');
    await world.settle();
    await world.pods.act('owner', id, 'start');
  });

  it('grows with a larger disk, and not with a restart', async () => {
    const world = await openWorld({ memoryGb: 4, vcpus: 2, diskGb: 30 });
    const { id } = await world.create();
    await world.settle();
    await world.pods.act('owner', id, 'restart');
    await world.settle();
    const larger = world.pods.update('owner', id, { disk: 31 });
    expect(await refusal(larger)).toMatch(refusalWith('disk', 11, 10, 30));
    expect((await world.pods.update('owner', id, { disk: 30 })).spec.disk).toBe(30);
    expect((await world.pods.update('owner', id, { name: 'b' })).spec.name).toBe('b');
  });

  it('is free as soon as the pod has exited', async () => {
    const world = await openWorld({ memoryGb: 4, vcpus: 2, diskGb: 100 });
    const { id } = await world.create();
    await world.settle();
    world.host.end(id, 0);
    await world.settle();
    expect((await world.create()).id).not.toBe(id);
  });

  it('is restored after a restart of the platform', async () => {
    const world = await openWorld({ memoryGb: 4, vcpus: 2, diskGb: 100 });
    await world.create();
    await world.settle();
    await world.restart();
    expect(await refusal(world.create())).toMatch(FULL);
  });
});

it('overcommits vCPUs and disk, but not memory', () => {
  const machine = { memoryGb: 16, vcpus: 4, diskGb: 50 };
  const limits = limitAmounts(machine, { vcpus: 8, disk: 4 });
  expect(limits).toEqual({ memoryGb: 16, vcpus: 32, diskGb: 200 });
});

it('does not name resources that are not requested', () => {
  const held = { memoryGb: 20, vcpus: 99, diskGb: 20 };
  const gpuPod = { memoryGb: 0, vcpus: 0, diskGb: 20 };
  expect(findShortage(gpuPod, held, LIMITS)).toBeUndefined();
});
