// On which node a new pod goes, and what counts as room if there are several.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Amounts, Place } from '../../../../src/control/limits/capacity.ts';
import { CPU, PodWorld } from '../../../support/containers/pod-world.ts';

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

  it('is refused with the numbers of the closest node if none has room', async () => {
    const world = await openWorld([
      { node: 'a', limits: SMALL },
      { node: 'b', limits: SMALL },
    ]);
    const cpu = { ...CPU, memory: 8 };
    for (let made = 0; made < 4; made++) await world.create({ cpu });
    const message = expect.stringMatching(/the closest is a: memory: 8 GB wanted, 0 GB of 16 GB/);
    await expect(world.create({ cpu })).rejects.toMatchObject({ ...refused, message });
  });

  it('is refused for exactly one of three simultaneous creations that have room for two', async () => {
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

it('adds the room of all nodes up for workers', async () => {
  const world = await openWorld([
    { node: 'a', limits: SMALL },
    { node: 'b', limits: LARGE },
  ]);
  const spec = { cpu: { ...CPU, memory: 8 }, disk: 1, mounts: {} };
  expect(world.pods.headroomFor(spec, 11)).toMatchObject({ places: 10 });
  expect(world.pods.headroomFor(spec, 10)).toBeUndefined();
});
