// What pods are billed, compared with the runs that their host has recorded: in any order of events, crashes of the
// platform, jumps of the clock, and containers that vanish.
import { expect, it, onTestFinished } from 'vitest';
import { amountOf } from '../../../../src/control/billing/bill-rows.ts';
import { Billing } from '../../../../src/control/billing/billing.ts';
import type { HostRun } from '../../../support/containers/memory-engine.ts';
import { createCatalog, GPU, PodWorld } from '../../../support/containers/pod-world.ts';
import { createRandom } from '../../../support/random.ts';

const OWNER = 'owner';
const DAY_MS = 86_400_000;
/** What the reconciler may miss of a container that vanishes while the platform runs. */
const SEEN_MS = 2_000;
const PRICE = 2_000_000;

async function openWorld(): Promise<PodWorld> {
  const world = await PodWorld.open({ catalog: createCatalog(['g1', 'g2']) });
  onTestFinished(() => world.close());
  return world;
}

async function readBill(world: PodWorld) {
  const { clock, pods, store } = world;
  const billing = new Billing({ store, clock, pods, nameOf: () => undefined });
  const to = clock.now() + DAY_MS;
  return billing.rows({ userId: undefined, step: 'day', from: 0, to });
}

function lengthOf(runs: readonly HostRun[], now: number): number {
  const lengths = runs.map(({ endedAt, startedAt }) => Math.max(0, (endedAt ?? now) - startedAt));
  return lengths.reduce((sum, each) => sum + each, 0);
}

it('bills a pod from the start of its container to its end', async () => {
  const world = await openWorld();
  const { id } = await world.create({ gpu: { id: GPU, count: 2 } });
  await world.settle();
  await world.settle(3_723_456);
  await world.pods.act(OWNER, id, 'stop');
  await world.settle(60_000);
  const [run] = world.host.runs;
  const ms = (run?.endedAt ?? 0) - (run?.startedAt ?? 0);
  expect(ms).toBeGreaterThanOrEqual(3_723_456);
  expect(await readBill(world)).toMatchObject([
    { kind: 'pod', id, name: 'a', ms, gpuMs: 2 * ms, units: BigInt(ms) * 4_000_000n },
  ]);
});

it('bills the workers of an endpoint together', async () => {
  const world = await openWorld();
  await world.createWorker();
  await world.createWorker();
  await world.settle();
  await world.settle(400_000);
  const [row, ...others] = await readBill(world);
  expect(others).toEqual([]);
  expect(row).toMatchObject({ kind: 'endpoint', id: 'ep_1' });
  const now = world.clock.monotonic();
  expect(lengthOf(world.host.runs, now) - (row?.ms ?? 0)).toBeLessThanOrEqual(2 * SEEN_MS);
});

it('bills a run that began and ended while the platform was down', async () => {
  const world = await openWorld();
  world.setCut({ at: 1, side: 'after' });
  const { id } = await world.create({ gpu: { id: GPU, count: 1 } });
  await world.settle(5_000);
  expect(world.engine.isCut).toBe(true);
  await world.settle(7_200_000);
  world.host.end(id, 0);
  await world.settle(7_200_000);
  await world.restart();
  await world.settle();
  const ms = lengthOf(world.host.runs, 0);
  expect(await readBill(world)).toMatchObject([{ id, ms, gpuMs: ms }]);
});

it('bills nothing of a time that the clock has skipped', async () => {
  const world = await openWorld();
  const { id } = await world.create({ gpu: { id: GPU, count: 1 } });
  await world.settle(600_000);
  world.clock.startFrom(world.clock.now() + 50_000_000);
  await world.settle(600_000);
  world.host.end(id, 0);
  await world.settle();
  expect(await readBill(world)).toHaveLength(1);
  const billed = (await readBill(world)).reduce((sum, { ms }) => sum + ms, 0);
  expect(billed).toBe(lengthOf(world.host.runs, 0));
});

const first = Number(process.env['SEED'] ?? 1);
const SEEDS = Array.from({ length: Number(process.env['SEEDS'] ?? 20) }, (_, at) => first + at);

it.each(SEEDS)('bills exactly the time in which containers ran: seed %i', async (seed) => {
  const world = await openWorld();
  const random = createRandom(seed);
  const pick = <T>(among: readonly T[]): T | undefined =>
    among[Math.floor(random() * among.length)];
  const ids: string[] = [];
  for (let pod = 0; pod < 2; pod++)
    ids.push((await world.create({ gpu: { id: GPU, count: 1 } })).id);
  const mayVanish = random() < 0.3;
  /** A container that vanishes takes the time of its end with it. */
  const vanished: string[] = [];
  /** Longest time between two sights, for containers that vanish. */
  let blindMs = SEEN_MS;
  const settle = async (ms: number) => {
    await world.settle(ms);
    if (world.engine.isCut) blindMs += ms + 300_000;
  };
  const events: ((id: string) => Promise<unknown> | unknown)[] = [
    ...(['start', 'start', 'stop', 'restart'] as const).map(
      (action) => (id: string) => world.pods.act(OWNER, id, action).catch(() => {}),
    ),
    (id) => world.pods.update(OWNER, id, { args: `other ${random()}` }).catch(() => {}),
    (id) => world.host.containers.has(id) && world.host.end(id, pick([0, 0, 1]) ?? 0),
    (id) => {
      if (!mayVanish || !world.host.containers.has(id)) return;
      vanished.push(id);
      world.host.remove(id, 'keep');
    },
    async () => {
      blindMs += 300_000;
      await world.restart();
    },
    // The platform sees the containers before and after: a jump while it is down cannot be told from time that passed.
    async () => {
      await settle(SEEN_MS);
      if (world.engine.isCut) return;
      world.clock.startFrom(world.clock.now() + (pick([5_000, 3_600_000]) ?? 0));
      world.setCut(undefined);
      await settle(SEEN_MS);
    },
    () => settle(Math.floor(random() * 3_000)),
    () => settle(Math.floor(random() * 900_000)),
    () => settle(0),
  ];
  for (let step = 0; step < 40; step++) {
    const side = random() < 0.5 ? 'before' : 'after';
    if (random() < 0.3) world.setCut({ at: Math.floor(random() * 3), side });
    await pick(events)?.(pick(ids) ?? '');
    // While the platform is down, time passes and containers end.
    if (world.engine.isCut) {
      await settle(Math.floor(random() * 400_000));
      await world.restart();
    }
  }
  world.setCut(undefined);
  await world.settle();
  // A call may have been under way.
  if (world.engine.isCut) await world.restart();
  for (const id of ids) await world.pods.act(OWNER, id, 'terminate').catch(() => {});
  await world.settle(60_000);
  expect(world.host.containers.size).toBe(0);
  const rows = await readBill(world);
  const now = world.clock.monotonic();
  for (const id of ids) {
    const own = rows.filter((row) => row.id === id);
    const runs = world.host.runs.filter((run) => run.id === id);
    const billed = own.reduce((sum, { ms }) => sum + ms, 0);
    const ran = lengthOf(runs, now);
    const lost = vanished.filter((each) => each === id).length;
    expect(billed).toBeLessThanOrEqual(ran);
    expect(ran - billed).toBeLessThanOrEqual(lost * blindMs);
    expect(own.reduce((sum, { gpuMs }) => sum + gpuMs, 0)).toBe(billed);
    const { units } = amountOf({ from: 0, to: billed, price: PRICE, gpus: 1 });
    expect(own.reduce((sum, row) => sum + row.units, 0n)).toBe(units);
  }
});
