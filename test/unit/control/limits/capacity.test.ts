// What pods together may ask of the machines, and which machine and GPUs a pod gets, with real pods in a store.
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type Amounts,
  allocateGpus,
  findShortage,
  type GpuWish,
  limitAmounts,
  type PodMachine,
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

const SMALL: Amounts = { memoryGb: 16, vcpus: 100, diskGb: 1_000 };
const LARGE: Amounts = { memoryGb: 64, vcpus: 100, diskGb: 1_000 };

async function openPlaces(places: PodMachine[]) {
  const world = await PodWorld.open({ pods: { listMachines: () => places } });
  onTestFinished(() => world.close());
  return world;
}

const refused = { status: 409, code: 'over_capacity' };

describe('a new pod', () => {
  it('goes to the node that is least full with it, and to the first name of equal ones', async () => {
    const world = await openPlaces([
      { node: 'b', limits: SMALL },
      { node: 'a', limits: SMALL },
    ]);
    const nodes: (string | undefined)[] = [];
    for (let made = 0; made < 4; made++) nodes.push((await world.create()).node);
    expect(nodes).toEqual(['a', 'b', 'a', 'b']);
  });

  it('fills machines of different sizes by their share', async () => {
    const world = await openPlaces([
      { node: 'large', limits: LARGE },
      { node: 'small', limits: SMALL },
    ]);
    const cpu = { ...CPU, memory: 4 };
    const nodes: (string | undefined)[] = [];
    for (let made = 0; made < 10; made++) nodes.push((await world.create({ cpu })).node);
    expect(nodes.filter((node) => node === 'small')).toHaveLength(2);
  });

  it('is refused with the numbers of the closest node if none has capacity', async () => {
    const world = await openPlaces([
      { node: 'a', limits: SMALL },
      { node: 'b', limits: SMALL },
    ]);
    const cpu = { ...CPU, memory: 8 };
    for (let made = 0; made < 4; made++) await world.create({ cpu });
    const message = expect.stringMatching(/the closest is a: memory: 8 GB wanted, 0 GB of 16 GB/);
    await expect(world.create({ cpu })).rejects.toMatchObject({ ...refused, message });
  });

  it('is refused for exactly one of three simultaneous creations, with capacity for two', async () => {
    const world = await openPlaces([
      { node: 'a', limits: SMALL },
      { node: 'b', limits: SMALL },
    ]);
    const cpu = { ...CPU, memory: 16 };
    const all = await Promise.allSettled([1, 2, 3].map(() => world.create({ cpu })));
    expect(all.filter(({ status }) => status === 'fulfilled')).toHaveLength(2);
    expect(new Set(world.pods.all().map(({ node }) => node))).toEqual(new Set(['a', 'b']));
  });

  it('waits for a node while none answers', async () => {
    const world = await openPlaces([]);
    await expect(world.create()).rejects.toMatchObject({ status: 503, code: 'unavailable' });
  });

  it('does not grow or start on a node that does not answer', async () => {
    const places: PodMachine[] = [{ node: 'a', limits: SMALL }];
    const world = await openPlaces(places);
    const { id, userId } = await world.create();
    await world.pods.act(userId, id, 'stop');
    await world.settle();
    places.length = 0;
    const start = world.pods.act(userId, id, 'start');
    await expect(start).rejects.toMatchObject({ code: 'unavailable' });
  });
});

it('adds up the capacity of all nodes for workers', async () => {
  const world = await openPlaces([
    { node: 'a', limits: SMALL },
    { node: 'b', limits: LARGE },
  ]);
  const spec = { cpu: { ...CPU, memory: 8 }, disk: 1, mounts: {} };
  expect(world.pods.headroomFor(spec, 11)).toMatchObject({ places: 10 });
  expect(world.pods.headroomFor(spec, 10)).toBeUndefined();
});

describe('a new pod with GPUs', () => {
  const gpus: Record<string, string[]> = { a: ['a1'], b: ['b1', 'b2'], c: [] };

  async function openGpuWorld() {
    const places = Object.keys(gpus).map((node) => ({ node, limits: SMALL }));
    const world = await PodWorld.open({
      catalog: createCatalog(Object.values(gpus).flat()),
      pods: { listMachines: () => places, gpusOfNode: (node) => new Set(gpus[node]) },
    });
    onTestFinished(() => world.close());
    const create = async (count: number) => (await world.create({ gpu: { id: GPU, count } })).id;
    const find = (id: string) => {
      const pod = world.pods.live.get(id);
      return { node: pod?.node, gpus: pod?.gpus };
    };
    return { world, create, find };
  }

  it('goes where enough of them are free, and gets those of its node', async () => {
    const { create, find, world } = await openGpuWorld();
    const pair = await create(2);
    const single = await create(1);
    await world.settle();
    expect(find(pair)).toEqual({ node: 'b', gpus: ['b1', 'b2'] });
    expect(find(single)).toEqual({ node: 'a', gpus: ['a1'] });
  });

  it('leaves GPUs to pods that are being created, or wait for them', async () => {
    const { create, find, world } = await openGpuWorld();
    const ids = await Promise.all([create(1), create(1), create(1)]);
    await world.settle();
    const all = ids.flatMap((id) => find(id).gpus);
    expect(all.toSorted()).toEqual(['a1', 'b1', 'b2']);
  });

  it('waits on a node that has enough if none has them free', async () => {
    const { create, find, world } = await openGpuWorld();
    const first = await create(2);
    const second = await create(2);
    await world.settle();
    expect(find(second)).toEqual({ node: 'b', gpus: [] });
    await world.pods.endWorker(first);
    await world.settle(5_000);
    expect(find(second)).toEqual({ node: 'b', gpus: ['b1', 'b2'] });
  });

  it('is refused if no node has as many, although all together do', async () => {
    const { create } = await openGpuWorld();
    await expect(create(3)).rejects.toMatchObject({
      ...{ code: 'over_capacity', message: expect.stringContaining('has 3 of H200') },
    });
  });
});

const devices = ['a', 'b', 'c', 'd'];

function wish(podId: string, count: number, among: readonly string[] | null = null): GpuWish {
  return { podId, count, among };
}

function allocate(wishes: GpuWish[], held: string[] = []) {
  return Object.fromEntries(allocateGpus({ devices, held: new Set(held), wishes }));
}

describe('GPUs', () => {
  it('are assigned in the order of requests, each once', () => {
    expect(allocate([wish('one', 2), wish('two', 1), wish('three', 1)])).toEqual({
      one: ['a', 'b'],
      two: ['c'],
      three: ['d'],
    });
  });

  it('are not assigned while another pod holds them', () => {
    expect(allocate([wish('one', 2)], ['a', 'c'])).toEqual({ one: ['b', 'd'] });
    expect(allocate([wish('one', 3)], ['a', 'c'])).toEqual({});
  });

  it('are reserved for a large request that came before small ones', () => {
    expect(allocate([wish('large', 3), wish('small', 1)], ['a', 'b'])).toEqual({});
  });

  it('are those that a pod is bound to, or none at all', () => {
    expect(allocate([wish('bound', 2, ['b', 'c'])])).toEqual({ bound: ['b', 'c'] });
    expect(allocate([wish('bound', 2, ['b', 'c'])], ['b'])).toEqual({});
    expect(allocate([wish('bound', 2, ['b'])])).toEqual({});
    expect(allocate([wish('bound', 1, ['x'])])).toEqual({});
  });

  it('do not wait for a pod that is bound to other GPUs', () => {
    const wishes = [wish('bound', 1, ['a']), wish('any', 1)];
    expect(allocate(wishes, ['a'])).toEqual({ any: ['b'] });
  });

  it('are not assigned to the next pod while one is bound to them', () => {
    expect(allocate([wish('bound', 1, ['a']), wish('any', 1)])).toEqual({
      bound: ['a'],
      any: ['b'],
    });
  });
});
