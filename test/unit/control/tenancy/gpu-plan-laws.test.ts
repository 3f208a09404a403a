// What holds of the plan for GPUs in every course of events: seeds of endpoints that share the GPUs of machines. `SEED=…` repeats one, `SEEDS=…`
// sets their number.
import { describe, expect, it } from 'vitest';
import { MAX_TURN_MS, PATIENCE_MS } from '../../../../src/control/tenancy/gpu-plan.ts';
import { chooseSeed, createRandom } from '../../../support/random.ts';
import { GpuWorld, type Guest, STEP_MS } from './gpu-world.ts';

const MINUTE_MS = 60_000;
const isRepeated = process.env['SEED'] !== undefined;
const COUNT = Number(process.env['SEEDS'] ?? (isRepeated ? 1 : 200));
const FIRST = chooseSeed(1);
const SEEDS = Array.from({ length: COUNT }, (_, index) => FIRST + index);

const LIMIT_MS = Math.max(120_000, COUNT * 500);
/** Of seeds whose endpoints always have work, over 20 minutes. */
const FAIR_COUNT = Math.ceil(COUNT / 50);
/** A turn of each fits the time after which an endpoint has waited for long. */
const SLOW_START_MS = 2_000;

/** Most ms that a guest's job, start or move takes. */
const SLOWEST_MS = 20_000;

function makeGuests(random: () => number, gpus: number): Guest[] {
  const pick = <T>(...all: [T, ...T[]]): T => all[Math.floor(random() * all.length)] ?? all[0];
  let kept = 0;
  const users = pick(1, 1, 2);
  return Array.from({ length: 2 + Math.floor(random() * 6) }, (_, n) => {
    const yields = random() < 0.3;
    const workersMin = random() < 0.2 && (yields || kept + 1 < gpus) ? 1 : 0;
    if (!yields) kept += workersMin;
    const jobMs = pick(100, 1_000, 10_000);
    const everyMs = pick(300, 3_000, 30_000, 90_000);
    return {
      ...{ id: `g${n}`, userId: `u${n % users}`, weight: pick(1, 1, 2, 5), workersMin, yields },
      minResidenceMs: pick(0, 1_000, 1_000, 10_000),
      workersMax: Math.max(workersMin, pick(1, 2, 4)),
      startMs: pick(300, 3_000, SLOWEST_MS),
      ...{ canPark: random() < 0.5, moveMs: pick(250, 3_000), bytes: pick(1, 5, 20) },
      spares: random() < 0.3 ? 1 + Math.floor(random() * 2) : 0,
      parkMs: pick(10_000, MINUTE_MS, 60 * MINUTE_MS),
      jobMs: () => jobMs * (0.5 + random()),
      everyMs: () => everyMs * 2 * random(),
      until: Number.POSITIVE_INFINITY,
    };
  });
}

function makeWorld(seed: number) {
  const random = createRandom(seed);
  const gpus = 1 + Math.floor(random() * 4);
  const split = random() < 0.3 ? Math.floor(random() * gpus) : 0;
  const guests = makeGuests(random, gpus);
  const memory = [0, 6, 25, 100][Math.floor(random() * 4)] ?? 0;
  const machines = 1 + Math.floor(random() * Math.min(gpus, 3));
  const share = [0, 0, 0.2][Math.floor(random() * 3)] ?? 0;
  const fail = (what: string) => share > 0 && random() < (what === 'worker' ? 0.000_5 : share);
  const options = { gpus: { A: gpus - split, B: split }, guests, memory, machines, fail };
  return { world: new GpuWorld(options), guests };
}

describe('in every course of events', () => {
  it(
    `no worker gives way too early, no endpoint starves, and parked memory is bounded, over ${COUNT} seeds`,
    () => {
      for (const seed of SEEDS) {
        const { guests, world } = makeWorld(seed);
        world.play(seed % 50 === 0 ? 10 * MINUTE_MS : 30_000);
        const leastOf = new Map(guests.map(({ id, minResidenceMs }) => [id, minResidenceMs]));
        for (const move of world.moves) {
          if (move.wasSpare || (move.kind !== 'drain' && move.kind !== 'park')) continue;
          const leastMs = Math.max(leastOf.get(move.endpointId) ?? 0, move.isTurnOver ? 1_000 : 0);
          expect(move.residedMs, `seed ${seed}: residence`).toBeGreaterThanOrEqual(leastMs);
        }
        // Of several users, one may keep its own endpoints waiting with a minimum of workers.
        if (new Set(guests.map(({ userId }) => userId)).size > 1) continue;
        const turnMs = MAX_TURN_MS + 4 * SLOWEST_MS;
        const longest = Math.max(0, ...world.waits.map(({ ms }) => ms), ...world.listOpenWaits());
        const bound = PATIENCE_MS + (guests.length + 1) * turnMs;
        expect(longest, `seed ${seed}: wait`).toBeLessThanOrEqual(bound);
      }
    },
    LIMIT_MS,
  );
});

function saturating(id: string, changes: Partial<Guest> = {}): Guest {
  return {
    ...{ id, userId: 'u', weight: 1, minResidenceMs: 1_000, workersMin: 0, workersMax: 4 },
    yields: false,
    ...{ startMs: 3_000, canPark: false, moveMs: 0, bytes: 0, parkMs: 0 },
    ...{ jobMs: () => 900, everyMs: () => 100, until: Number.POSITIVE_INFINITY },
    ...changes,
  };
}

function shareOf(world: GpuWorld): (id: string) => number {
  const all = [...world.held.values()].reduce((sum, ms) => sum + ms, 0);
  return (id) => (world.held.get(id) ?? 0) / all;
}

describe('endpoints with more work than the GPUs can do', () => {
  it.each([
    { gpus: 1, weights: [1, 1] },
    { gpus: 1, weights: [3, 1] },
    { gpus: 1, weights: [1, 1, 1, 1] },
    { gpus: 1, weights: [1, 2, 5] },
    { gpus: 2, weights: [1, 1] },
    { gpus: 3, weights: [1, 1] },
    { gpus: 4, weights: [3, 1] },
    { gpus: 4, weights: [1, 1, 1, 1, 1] },
  ])('get GPU time by their weights: $weights on $gpus', ({ gpus, weights }) => {
    const guests = weights.map((weight, n) => saturating(`g${n}`, { weight }));
    const world = new GpuWorld({ gpus: { A: gpus }, guests, memory: 0 }).play(20 * MINUTE_MS);
    const share = shareOf(world);
    const sum = weights.reduce((total, weight) => total + weight, 0);
    for (const { id, weight } of guests) {
      expect(share(id), id).toBeGreaterThan((0.85 * weight) / sum);
      expect(share(id), id).toBeLessThan((1.15 * weight) / sum);
    }
  });

  it('do not change places if each has its share', () => {
    const guests = [saturating('a', { weight: 3 }), saturating('b')];
    const world = new GpuWorld({ gpus: { A: 4 }, guests, memory: 0 }).play(20 * MINUTE_MS);
    expect(world.moves.length).toBeLessThanOrEqual(4);
  });

  it('spend at most a quarter of the time on starts', () => {
    for (const startMs of [1_000, 3_000, 10_000]) {
      const guests = [saturating('a', { startMs }), saturating('b', { startMs })];
      const world = new GpuWorld({ gpus: { A: 1 }, guests, memory: 0 }).play(20 * MINUTE_MS);
      const turns = world.moves.length;
      expect(turns).toBeGreaterThan(10);
      expect(turns * startMs).toBeLessThan(5 * MINUTE_MS);
    }
  });

  it('wait a bounded time, however small their weight is', () => {
    const guests = [saturating('a', { weight: 100 }), saturating('b')];
    const world = new GpuWorld({ gpus: { A: 1 }, guests, memory: 0 }).play(20 * MINUTE_MS);
    const longest = Math.max(...world.waits.map(({ ms }) => ms));
    expect(longest).toBeLessThanOrEqual(PATIENCE_MS + 5_000);
    expect(world.waits.length).toBeGreaterThan(8);
  });

  it('do not make up for hours in which another one was alone', () => {
    const late = saturating('late');
    let calls = 0;
    const everyMs = () => (calls++ === 0 ? 60 * MINUTE_MS : 100);
    const guests = [saturating('early'), { ...late, everyMs }];
    const world = new GpuWorld({ gpus: { A: 1 }, guests, memory: 0 }).play(60 * MINUTE_MS);
    const before = world.held.get('early') ?? 0;
    world.play(70 * MINUTE_MS);
    const share = ((world.held.get('early') ?? 0) - before) / (10 * MINUTE_MS);
    expect(share).toBeGreaterThan(0.4);
    expect(share).toBeLessThan(0.6);
  });
});

it(
  `endpoints with more work than the GPUs can do get GPU time by their weights, over ${FAIR_COUNT} seeds`,
  () => {
    for (const seed of SEEDS.slice(0, FAIR_COUNT)) {
      const random = createRandom(seed);
      const pick = <T>(...all: [T, ...T[]]): T => all[Math.floor(random() * all.length)] ?? all[0];
      const gpus = pick(1, 1, 2, 3, 4);
      const guests = Array.from({ length: gpus + pick(1, 2) }, (_, n) =>
        saturating(`g${n}`, {
          weight: pick(1, 1, 2, 3),
          ...{
            canPark: random() < 0.5,
            startMs: pick(500, 1_000, SLOW_START_MS),
            moveMs: pick(250, SLOW_START_MS),
          },
          ...{ bytes: pick(1, 5), parkMs: 60 * MINUTE_MS, minResidenceMs: pick(0, 1_000, 5_000) },
          jobMs: () => pick(200, 900, 3_000) * (0.5 + random()),
        }),
      );
      const memory = pick(0, 6, 100);
      const world = new GpuWorld({ gpus: { A: gpus }, guests, memory }).play(20 * MINUTE_MS);
      const share = shareOf(world);
      const sum = guests.reduce((total, { weight }) => total + weight, 0);
      // Whoever has waited for long has a turn, which may be more than a small weight gives.
      const turnMs = 1.5 * 4 * SLOW_START_MS + SLOW_START_MS;
      const most = turnMs / PATIENCE_MS / gpus;
      for (const { id, weight } of guests) {
        const fair = weight / sum;
        expect(share(id), `seed ${seed}: ${id}`).toBeGreaterThan(0.8 * fair);
        expect(share(id), `seed ${seed}: ${id}`).toBeLessThan(Math.max(1.25 * fair, most));
      }
    }
  },
  LIMIT_MS,
);

describe('users with more work than the GPUs can do', () => {
  it.each([
    { gpus: 1, endpoints: 4 },
    { gpus: 1, endpoints: 12 },
    { gpus: 2, endpoints: 5 },
  ])('get equal GPU time: one has $endpoints endpoints on $gpus, the other one', (given) => {
    const { endpoints, gpus } = given;
    const many = Array.from({ length: endpoints }, (_, n) =>
      saturating(`many${n}`, { userId: 'v', weight: 100, minResidenceMs: 3_600_000 }),
    );
    const guests = [saturating('one'), ...many];
    const world = new GpuWorld({ gpus: { A: gpus }, guests, memory: 0 }).play(25 * MINUTE_MS);
    const share = shareOf(world);
    expect(share('one')).toBeGreaterThan(0.4);
    expect(share('one')).toBeLessThan(0.6);
    const shares = many.map(({ id }) => share(id)).sort((a, b) => a - b);
    if (gpus === 1) expect(shares[0]).toBeGreaterThan(0.25 / endpoints);
  });
});

const parks = { canPark: true, moveMs: 250, bytes: 1, startMs: 20_000, parkMs: 10_000 };

it('a spare worker that starts gives its GPU up within a step', () => {
  const a = saturating('a', { ...parks, everyMs: () => 60 * MINUTE_MS, spares: 1 });
  const b = saturating('b', { everyMs: () => 10_000 });
  const world = new GpuWorld({ gpus: { A: 1 }, guests: [a, b], memory: 10 }).play(MINUTE_MS);
  expect(world.moves).toMatchObject([{ kind: 'drain', endpointId: 'a', wasSpare: true }]);
  expect(Math.max(...world.waits.map(({ ms }) => ms))).toBeLessThanOrEqual(2 * STEP_MS);
});

it('spare workers start on GPUs that nobody waits for, stay parked, and make no job wait', () => {
  const rare = { everyMs: () => 5 * MINUTE_MS, jobMs: () => 1_000 };
  const guests = ['a', 'b'].map((id) => saturating(id, { ...parks, ...rare, spares: 1 }));
  const world = new GpuWorld({ gpus: { A: 1 }, guests, memory: 10 }).play(60 * MINUTE_MS);
  expect(world.spares).toBeGreaterThanOrEqual(2);
  expect(world.workers.map(({ endpointId }) => endpointId).sort()).toEqual(['a', 'b']);
  // At most for a job of the other one.
  expect(Math.max(...world.waits.map(({ ms }) => ms))).toBeLessThanOrEqual(2_000);
});

it('an idle worker gives way within a step, once its residence is over', () => {
  let turn = 0;
  const once = (at: number) => () => (turn++ === at ? 0 : 60 * MINUTE_MS);
  const a = saturating('a', { everyMs: () => 60 * MINUTE_MS, startMs: 1_000 });
  const guests = [
    { ...a, everyMs: once(0) },
    { ...a, id: 'b', everyMs: () => 30_000 },
  ];
  const world = new GpuWorld({ gpus: { A: 1 }, guests, memory: 0 }).play(MINUTE_MS);
  expect(world.moves[0]).toMatchObject({
    kind: 'drain',
    endpointId: 'a',
    to: 'b',
    isTurnOver: false,
  });
  expect(Math.max(...world.waits.map(({ ms }) => ms))).toBeLessThanOrEqual(2 * STEP_MS);
});
