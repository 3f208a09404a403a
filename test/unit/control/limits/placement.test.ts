// On which node a new pod goes, and what counts as capacity if there are several.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Amounts, Place } from '../../../../src/control/limits/capacity.ts';
import { CPU, createCatalog, GPU, PodWorld } from '../../../support/containers/pod-world.ts';

const SMALL: Amounts = { memoryGb: 16, vcpus: 100, diskGb: 1_000 };
const LARGE: Amounts = { memoryGb: 64, vcpus: 100, diskGb: 1_000 };

async function openWorld(places: Place[]) {
  const world = await PodWorld.open({ pods: { listPlaces: () => places } });
  onTestFinished(() => world.close());
  return world;
}

const refused = { status: 409, code: 'over_capacity' };

describe('a new pod', () => {
  it('goes to the node that is least full with it, and to the first name of equal ones', async () => {
    const world = await openWorld([
      { node: 'b', limits: SMALL },
      { node: 'a', limits: SMALL },
    ]);
    const nodes: (string | undefined)[] = [];
    for (let made = 0; made < 4; made++) nodes.push((await world.create()).node);
    expect(nodes).toEqual(['a', 'b', 'a', 'b']);
  });

  it('fills machines of different sizes by their share', async () => {
    const world = await openWorld([
      { node: 'large', limits: LARGE },
      { node: 'small', limits: SMALL },
    ]);
    const cpu = { ...CPU, memory: 4 };
    const nodes: (string | undefined)[] = [];
    for (let made = 0; made < 10; made++) nodes.push((await world.create({ cpu })).node);
    expect(nodes.filter((node) => node === 'small')).toHaveLength(2);
  });

  it('is refused with the numbers of the closest node if none has capacity', async () => {
    const world = await openWorld([
      { node: 'a', limits: SMALL },
      { node: 'b', limits: SMALL },
    ]);
    const cpu = { ...CPU, memory: 8 };
    for (let made = 0; made < 4; made++) await world.create({ cpu });
    const message = expect.stringMatching(/the closest is a: memory: 8 GB wanted, 0 GB of 16 GB/);
    await expect(world.create({ cpu })).rejects.toMatchObject({ ...refused, message });
  });

  it('is refused for exactly one of three simultaneous creations, with capacity for two', async () => {
    const world = await openWorld([
      { node: 'a', limits: SMALL },
      { node: 'b', limits: SMALL },
    ]);
    const cpu = { ...CPU, memory: 16 };
    const all = await Promise.allSettled([1, 2, 3].map(() => world.create({ cpu })));
    expect(all.filter(({ status }) => status === 'fulfilled')).toHaveLength(2);
    expect(new Set(world.pods.all().map(({ node }) => node))).toEqual(new Set(['a', 'b']));
  });

  it('waits for a node while none answers', async () => {
    const world = await openWorld([]);
    await expect(world.create()).rejects.toMatchObject({ status: 503, code: 'unavailable' });
  });

  it('does not grow or start on a node that does not answer', async () => {
    const places: Place[] = [{ node: 'a', limits: SMALL }];
    const world = await openWorld(places);
    const { id, userId } = await world.create();
    await world.pods.act(userId, id, 'stop');
    await world.settle();
    places.length = 0;
    const start = world.pods.act(userId, id, 'start');
    await expect(start).rejects.toMatchObject({ code: 'unavailable' });
  });
});

it('adds up the capacity of all nodes for workers', async () => {
  const world = await openWorld([
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
      pods: { listPlaces: () => places, gpusOfNode: (node) => new Set(gpus[node]) },
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
