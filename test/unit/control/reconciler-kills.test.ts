// The platform is lost at each call of its engine, in each transition, and comes back: the pod arrives
// where it should, with exactly one container or with none.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { PodAction, PodStatus } from '../../../src/wire/resources/pod.ts';
import { type Cut, createCatalog, GPU, PodWorld } from '../../support/containers/pod-world.ts';
import { createRandom } from '../../support/random.ts';

const OWNER = 'owner';
const POD = {
  gpu: { id: GPU, count: 1 },
  mounts: { persistent: { size: 10, path: '/data' } },
};

interface Transition {
  /** Brings the pod to where the transition begins. Default: it runs. */
  prepare?: (world: PodWorld, id: string) => Promise<unknown>;
  act: (world: PodWorld, id: string) => Promise<unknown> | unknown;
  /** Calls of the engine that it takes. */
  calls: number;
  expected: {
    status: PodStatus;
    container: 'running' | 'exited' | 'none';
    generation?: number;
    /** Of the disk that it has at the end. */
    runsOnDisk?: number;
  };
}

const runsAnew = { status: 'RUNNING', container: 'running', generation: 2, runsOnDisk: 1 } as const;
const act = (action: PodAction) => (world: PodWorld, id: string) =>
  world.pods.act(OWNER, id, action);
const endTwice = async (world: PodWorld, id: string) => {
  world.host.end(id, 3);
  await world.settle(1_000);
  world.host.end(id, 3);
  await world.settle(2_000);
};

const transitions: Record<string, Transition> = {
  stop: {
    act: act('stop'),
    calls: 1,
    expected: { status: 'EXITED', container: 'exited', runsOnDisk: 1 },
  },
  start: {
    prepare: act('stop'),
    act: act('start'),
    calls: 1,
    expected: { status: 'RUNNING', container: 'running', generation: 1, runsOnDisk: 2 },
  },
  'stop and start': {
    act: async (world, id) => {
      await world.pods.act(OWNER, id, 'stop');
      await world.pods.act(OWNER, id, 'start');
    },
    calls: 2,
    expected: { status: 'RUNNING', container: 'running', generation: 1, runsOnDisk: 2 },
  },
  restart: { act: act('restart'), calls: 4, expected: runsAnew },
  terminate: {
    act: act('terminate'),
    calls: 2,
    expected: { status: 'TERMINATED', container: 'none' },
  },
  'terminate of an exited pod': {
    prepare: act('stop'),
    act: act('terminate'),
    calls: 1,
    expected: { status: 'TERMINATED', container: 'none' },
  },
  'change of what it runs': {
    act: (world, id) => world.pods.update(OWNER, id, { args: 'other' }),
    calls: 4,
    expected: runsAnew,
  },
  'change of what an exited pod runs': {
    prepare: act('stop'),
    act: (world, id) => world.pods.update(OWNER, id, { args: 'other' }),
    calls: 1,
    expected: { status: 'EXITED', container: 'none' },
  },
  crash: {
    act: (world, id) => world.host.end(id, 3),
    calls: 1,
    expected: { status: 'RUNNING', container: 'running', generation: 1, runsOnDisk: 2 },
  },
  'end of its own': {
    act: (world, id) => world.host.end(id, 0),
    calls: 0,
    expected: { status: 'EXITED', container: 'exited', runsOnDisk: 1 },
  },
  'third crash in a row': {
    prepare: endTwice,
    act: (world, id) => world.host.end(id, 3),
    calls: 0,
    expected: { status: 'ERROR', container: 'exited', runsOnDisk: 3 },
  },
  'start after it was given up': {
    prepare: async (world, id) => {
      await endTwice(world, id);
      world.host.end(id, 3);
      await world.settle();
    },
    act: act('start'),
    calls: 1,
    expected: { status: 'RUNNING', container: 'running', runsOnDisk: 4 },
  },
};

async function openWorld(): Promise<PodWorld> {
  const world = await PodWorld.open({ catalog: createCatalog(['g1']) });
  onTestFinished(() => world.close());
  return world;
}

/** Whatever was under way has come to its end, also what waits before it tries again. */
function comeToRest(world: PodWorld): Promise<void> {
  return world.settle(12_000);
}

async function play({ act, prepare }: Transition, cut: Cut | undefined) {
  const world = await openWorld();
  const { id } = await world.create(POD);
  await world.settle();
  await prepare?.(world, id);
  await world.settle();
  world.setCut(cut);
  await act(world, id);
  await comeToRest(world);
  const { calls } = world.engine;
  if (cut) {
    expect(world.engine.isCut).toBe(true);
    await world.restart();
    await comeToRest(world);
  }
  return { world, id, calls };
}

async function check(world: PodWorld, id: string, { expected }: Transition): Promise<void> {
  const { container, generation = 1, runsOnDisk, status } = expected;
  const pod = await world.pods.find(OWNER, id);
  expect(pod).toMatchObject({ status, failures: status === 'ERROR' ? 3 : expect.any(Number) });
  expect(world.pods.heldGpus()).toEqual(new Set(container === 'running' ? ['g1'] : []));
  expect(world.host.volumes.has(id)).toBe(status !== 'TERMINATED');
  expect([...world.host.containers.keys()]).toEqual(container === 'none' ? [] : [id]);
  if (container === 'none') return;
  const seen = { state: container, generation };
  expect(world.host.get(id)).toMatchObject({ seen, ...(runsOnDisk && { runsOnDisk }) });
}

describe.each(Object.entries(transitions))('%s', (_name, transition) => {
  const cuts = Array.from({ length: transition.calls }, (_, at) =>
    (['before', 'after'] as const).map((side): Cut => ({ at, side })),
  ).flat();

  it('makes as many engine calls as this test cuts off', async () => {
    const { calls, id, world } = await play(transition, undefined);
    expect(calls).toBe(transition.calls);
    await check(world, id, transition);
  });

  it.each(cuts)('completes when the platform is killed $side call $at', async (cut) => {
    const { id, world } = await play(transition, cut);
    await check(world, id, transition);
  });

  it('completes when the platform is killed before its first call', async () => {
    const world = await openWorld();
    const { id } = await world.create(POD);
    await world.settle();
    await transition.prepare?.(world, id);
    await world.settle();
    await transition.act(world, id);
    await world.restart();
    await comeToRest(world);
    await check(world, id, transition);
  });
});

describe('creation', () => {
  const cuts = [0, 1].flatMap((at) => (['before', 'after'] as const).map((side) => ({ at, side })));

  it.each(cuts)('completes when the platform is killed $side call $at', async (cut) => {
    const world = await openWorld();
    world.setCut(cut);
    const { id } = await world.create(POD);
    await comeToRest(world);
    expect(world.engine.isCut).toBe(true);
    await world.restart();
    await comeToRest(world);
    expect(world.pods.live.get(id)).toMatchObject({
      status: 'RUNNING',
      generation: 1,
      gpus: ['g1'],
    });
    expect(world.host.get(id)).toMatchObject({ seen: { state: 'running' }, runsOnDisk: 1 });
  });
});

/** What was answered last is where it has to arrive. */
function expectSettled(world: PodWorld, id: string): void {
  const pod = world.pods.live.get(id);
  const entry = world.host.containers.get(id);
  switch (pod?.desired) {
    case undefined:
      expect(entry).toBeUndefined();
      expect(world.host.volumes.has(id)).toBe(false);
      break;
    case 'gone':
      throw new Error('what is to be gone is still there');
    case 'stopped':
      expect(['EXITED', 'ERROR']).toContain(pod.status);
      expect(pod.gpus).toEqual([]);
      expect(entry?.seen.state).not.toBe('running');
      break;
    case 'running':
      expect(pod).toMatchObject({ status: 'RUNNING', gpus: ['g1'] });
      expect(entry?.seen).toMatchObject({ state: 'running', generation: pod.generation });
  }
}

const SEEDS = Array.from({ length: 60 }, (_, index) => index + 1);

describe('any order of events', () => {
  it.each(SEEDS)('ends in the state of the last answer: seed %i', async (seed) => {
    const world = await openWorld();
    const random = createRandom(seed);
    const pick = <T>(among: readonly T[]): T | undefined =>
      among[Math.floor(random() * among.length)];
    const { id } = await world.create(POD);
    const events: (() => Promise<unknown> | unknown)[] = [
      ...(['start', 'stop', 'restart'] as const).map(
        (action) => () => world.pods.act(OWNER, id, action).catch(() => {}),
      ),
      () => world.pods.update(OWNER, id, { args: `other ${random()}` }).catch(() => {}),
      () => world.host.containers.has(id) && world.host.end(id, pick([0, 0, 1]) ?? 0),
      () => world.host.containers.has(id) && world.host.remove(id, 'keep'),
      () => world.restart(),
      () => world.settle(Math.floor(random() * 3_000)),
      () => world.settle(),
    ];
    for (let step = 0; step < 25; step++) {
      const side = random() < 0.5 ? 'before' : 'after';
      if (random() < 0.3) world.setCut({ at: Math.floor(random() * 3), side });
      await pick(events)?.();
      if (world.engine.isCut) await world.restart();
    }
    world.setCut(undefined);
    if (random() < 0.2) await world.pods.act(OWNER, id, 'terminate');
    await world.settle(60_000);
    expectSettled(world, id);
  });
});
