// What network volumes are billed, compared with a list of what they were: in any order of events, with prices that
// change, a platform that is lost at any commit, and jumps of the clock.

import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog as log } from '../../../../src/base/log.ts';
import { addToBill } from '../../../../src/control/billing/bill-rows.ts';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { Spending } from '../../../../src/control/billing/spending.ts';
import { VolumeMeters } from '../../../../src/control/billing/volume-meters.ts';
import {
  type NetworkVolumeService,
  openNetworkVolumes,
} from '../../../../src/control/volumes/network-volumes.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store, Transaction, WriteOptions } from '../../../../src/store/store.ts';
import { createRandom } from '../../../support/random.ts';

const OWNER = 'owner';
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const MONTH_HOURS = 730;
const CATALOG = {
  defaultDataCenter: 'local',
  hasDataCenter: () => true,
  declaredVolumes: () => [],
};

/** Where the platform is lost: before or after its next commit. `failed`: the commit fails, and the platform goes on. */
type Cut = 'before' | 'after' | 'failed' | undefined;

class VolumeWorld {
  clock = new ManualClock();
  /** USD for one GB and month. */
  price = 0.07;
  /** By this, the clock of the platform is ahead, ms. */
  aheadMs = 0;
  cut: Cut;
  /** Resolves when the platform is lost. */
  #lost = Promise.withResolvers<void>();
  readonly #store = openSqliteStore({ path: ':memory:' });
  #volumes: NetworkVolumeService | undefined;
  #meters: VolumeMeters | undefined;

  static async open(price = 0.07): Promise<VolumeWorld> {
    const world = new VolumeWorld();
    world.price = price;
    onTestFinished(() => world.#store.close());
    await world.restart();
    return world;
  }

  get volumes(): NetworkVolumeService {
    if (!this.#volumes) throw new Error('the platform is not there');
    return this.#volumes;
  }

  get meters(): VolumeMeters {
    if (!this.#meters) throw new Error('the platform is not there');
    return this.#meters;
  }

  /** Discards what is in memory; the catalog has the price of now. */
  async restart(): Promise<void> {
    this.cut = undefined;
    this.#lost = Promise.withResolvers<void>();
    const { aheadMs, price } = this;
    const { after, monotonic } = this.clock;
    const now = () => this.clock.now() + aheadMs;
    const clock = { now, monotonic, after: after.bind(this.clock) };
    const store = this.#wrap();
    const meters = new VolumeMeters({
      bill: { add: addToBill },
      ...{ store, clock, log, priceOf: () => price },
    });
    this.#meters = meters;
    this.#volumes = await openNetworkVolumes({ store, clock, catalog: CATALOG, meters });
    await meters.load();
    await this.observe();
  }

  observe(): Promise<void> {
    return this.meters.observe(this.volumes.entries());
  }

  /** The volumes as the store has them. */
  openStored(): Promise<NetworkVolumeService> {
    return openNetworkVolumes({ store: this.#store, clock: this.clock, catalog: CATALOG });
  }

  /** Ends when the platform has done it, or is lost. @returns whether it is lost */
  async run(act: () => Promise<unknown>): Promise<boolean> {
    return Promise.race([act().then(() => false), this.#lost.promise.then(() => true)]);
  }

  openBilling(): Billing {
    return new Billing({
      ...{ store: this.#store, clock: this.clock, volumes: this.meters },
      pods: undefined,
      nameOf: () => undefined,
    });
  }

  /** As budgets count it. */
  async spent(userId: string) {
    const { clock } = this;
    const spending = new Spending({ store: this.#store, billing: this.openBilling() });
    return spending.read([{ userId, endpointId: null, from: 0, to: clock.now() + DAY_MS }]);
  }

  async rows() {
    const { clock } = this;
    const billing = this.openBilling();
    const range = { userId: undefined, from: 0, to: clock.now() + DAY_MS };
    const hours = await billing.rows({ ...range, step: 'hour' });
    const days = await billing.rows({ ...range, step: 'day' });
    return { days, hours };
  }

  #wrap(): Store {
    const store = this.#store;
    return {
      read: (operation) => store.read(operation),
      reclaim: (pages) => store.reclaim(pages),
      close: async () => {},
      write: async <T>(operation: (tx: Transaction) => T, options?: WriteOptions) => {
        const { cut } = this;
        if (cut === 'before') return this.#lose();
        if (cut === 'failed') return store.write((tx) => fail(operation(tx)), options);
        const result = await store.write(operation, options);
        return cut === 'after' ? this.#lose() : result;
      },
    };
  }

  #lose(): Promise<never> {
    this.#lost.resolve();
    return new Promise(() => {});
  }
}

function fail<T>(operation: T): T {
  operation;
  throw new Error('the disk is full');
}

function creation(name: string, size: number) {
  return { name, size, dataCenterId: null };
}

it('bills a volume from its creation to its deletion, by its size and month', async () => {
  const world = await VolumeWorld.open();
  const { id } = await world.volumes.create(OWNER, creation('models', 200));
  await world.clock.advance(HOUR_MS * MONTH_HOURS);
  await world.volumes.remove(OWNER, id);
  await world.clock.advance(HOUR_MS);
  const { days } = await world.rows();
  const sum = days.reduce((all, { units }) => all + units, 0n);
  const [row] = days;
  expect(row).toMatchObject({ kind: 'volume', id, userId: OWNER, name: 'models', gpuMs: 0 });
  expect(days.reduce((all, { ms }) => all + ms, 0)).toBe(HOUR_MS * MONTH_HOURS);
  // 14 USD, which no price for an hour would give.
  expect(sum).toBe(14_000_000n * BigInt(HOUR_MS));
});

it('bills a volume from the time that it shows as that of its creation', async () => {
  const world = await VolumeWorld.open();
  const begin = world.clock.now();
  const creating = world.volumes.create(OWNER, creation('a', 73));
  // The commit comes later than the call.
  world.clock.startFrom(begin + 12);
  const { createdAt, id } = await creating;
  expect(createdAt).toBe(new Date(begin).toISOString());
  await world.clock.advance(HOUR_MS);
  await world.volumes.remove(OWNER, id);
  const { days } = await world.rows();
  expect(days.reduce((all, { ms }) => all + ms, 0)).toBe(HOUR_MS + 12);
});

it('bills a volume that has grown at its size before, and then at its new one', async () => {
  const world = await VolumeWorld.open();
  const { id } = await world.volumes.create(OWNER, creation('a', 73));
  await world.clock.advance(10 * HOUR_MS);
  await world.volumes.update(OWNER, id, { size: 146 });
  await world.clock.advance(10 * HOUR_MS);
  await world.observe();
  const { days } = await world.rows();
  // 7,000 and 14,000 millionths of a USD an hour.
  const units = 210_000n * BigInt(HOUR_MS);
  expect(days.reduce((all, row) => all + row.units, 0n)).toBe(units);
  await world.clock.advance(1_000);
  expect(await world.spent(OWNER)).toMatchObject([{ billed: units, unseen: 0n }]);
});

it.each([
  [
    'grows',
    7_000n,
    (world: VolumeWorld, id: string) => world.volumes.update(OWNER, id, { size: 146 }),
  ],
  ['is deleted', 7_000n, (world: VolumeWorld, id: string) => world.volumes.remove(OWNER, id)],
] as const)(
  'counts no time twice while it is on disk that a volume %s, but not yet in memory',
  async (_, price, act) => {
    const world = await VolumeWorld.open();
    const { id } = await world.volumes.create(OWNER, creation('a', 73));
    await world.clock.advance(HOUR_MS / 2);
    await world.observe();
    const spent = [{ billed: (price * BigInt(HOUR_MS)) / 2n, unseen: 0n }];
    expect(await world.spent(OWNER)).toEqual(spent);
    world.cut = 'after';
    expect(await world.run(() => act(world, id))).toBe(true);
    expect(await world.spent(OWNER)).toEqual(spent);
  },
);

it('counts the time of a volume again if the commit of its change has failed', async () => {
  const world = await VolumeWorld.open();
  const { id } = await world.volumes.create(OWNER, creation('a', 73));
  await world.clock.advance(HOUR_MS / 2);
  await world.observe();
  world.cut = 'failed';
  await expect(world.volumes.update(OWNER, id, { size: 146 })).rejects.toThrow('the disk is full');
  world.cut = undefined;
  await world.observe();
  const spent = [{ billed: 3_500n * BigInt(HOUR_MS), unseen: 0n }];
  expect(await world.spent(OWNER)).toEqual(spent);
});

it('bills a new size at once, although an earlier leader whose clock was ahead has billed time to come', async () => {
  const world = await VolumeWorld.open();
  const { id } = await world.volumes.create(OWNER, creation('a', 73));
  await world.clock.advance(HOUR_MS - 5_000);
  world.aheadMs = 5_000;
  await world.restart();
  await world.volumes.update(OWNER, id, { size: 74 });
  world.aheadMs = 0;
  await world.restart();
  await world.volumes.update(OWNER, id, { size: 146 });
  await world.clock.advance(5_000 + HOUR_MS);
  await world.volumes.remove(OWNER, id);
  const { days } = await world.rows();
  // 7,000 and 14,000 millionths of a USD an hour.
  expect(days.reduce((all, { units }) => all + units, 0n)).toBe(21_000n * BigInt(HOUR_MS));
  expect(days.reduce((all, { ms }) => all + ms, 0)).toBe(2 * HOUR_MS);
});

it('bills the price in force at the time when the catalog changes between two starts', async () => {
  const world = await VolumeWorld.open();
  await world.volumes.create(OWNER, creation('a', 73));
  await world.clock.advance(5 * HOUR_MS);
  world.price = 0.14;
  await world.restart();
  await world.clock.advance(5 * HOUR_MS);
  world.price = 0;
  await world.restart();
  await world.clock.advance(5 * HOUR_MS);
  await world.observe();
  const { days } = await world.rows();
  expect(days.reduce((all, { ms }) => all + ms, 0)).toBe(10 * HOUR_MS);
  expect(days.reduce((all, { units }) => all + units, 0n)).toBe(105_000n * BigInt(HOUR_MS));
});

it('has no records of volumes that cost nothing', async () => {
  const world = await VolumeWorld.open(0);
  const { id } = await world.volumes.create(OWNER, creation('a', 10));
  await world.clock.advance(5 * HOUR_MS);
  await world.observe();
  await world.volumes.remove(OWNER, id);
  expect(await world.rows()).toEqual({ days: [], hours: [] });
});

it('bills from the start on after the clock was far ahead before it', async () => {
  const world = await VolumeWorld.open();
  const { id } = await world.volumes.create(OWNER, creation('a', 73));
  const begun = world.clock.now();
  world.clock.startFrom(begun + 400 * DAY_MS);
  await world.observe();
  world.clock = new ManualClock(begun + HOUR_MS);
  await world.restart();
  await world.clock.advance(5 * HOUR_MS);
  await world.observe();
  const { days } = await world.rows();
  expect(days.reduce((all, { ms }) => all + ms, 0)).toBe(5 * HOUR_MS);
  expect(await world.spent(OWNER)).toMatchObject([{ billed: 7_000n * 5n * BigInt(HOUR_MS) }]);
  await world.volumes.remove(OWNER, id);
  expect(world.meters.open()).toEqual([]);
});

const first = Number(process.env['SEED'] ?? 1);
const SEEDS = Array.from({ length: Number(process.env['SEEDS'] ?? 8) }, (_, at) => first + at);

/** What a volume was in a time. */
interface Part {
  ms: number;
  /** Millionths of a USD for the months' hours. */
  price: number;
}

it.each(SEEDS)('bills exactly the time, size and price of volumes: seed %i', async (seed) => {
  const world = await VolumeWorld.open();
  const { clock } = world;
  const random = createRandom(seed);
  const pick = <T>(among: readonly T[]): T | undefined =>
    among[Math.floor(random() * among.length)];
  const parts = new Map<string, Part[]>();
  /** The volumes that exist, with the price that they have. */
  let known = new Map<string, number>();
  const priceOf = (size: number | null) => Math.round(world.price * 1_000_000) * (size ?? 0);
  /** As the store has them. */
  const follow = async () => {
    const stored = (await world.openStored()).all();
    known = new Map(stored.map(({ id, size }) => [id, priceOf(size)]));
  };
  const pass = (ms: number) => {
    for (const [id, price] of known) parts.set(id, [...(parts.get(id) ?? []), { ms, price }]);
    return ms;
  };
  const restart = async () => {
    // The old price counts while the platform is down.
    await clock.advance(pass(Math.floor(random() * 3 * HOUR_MS)));
    world.price = pick([0, 0.07, 0.05, 0.333333]) ?? 0;
    await world.restart();
    await follow();
  };
  const act = async (run: () => Promise<unknown>) => {
    const isLost = await world.run(run);
    await follow();
    if (isLost) await restart();
  };
  const idOf = () => pick([...known.keys()]) ?? '';
  const events: (() => Promise<unknown>)[] = [
    () => act(() => world.volumes.create(OWNER, creation('v', 1 + Math.floor(random() * 99)))),
    () => act(() => world.volumes.create(OWNER, creation('v', 1 + Math.floor(random() * 99)))),
    () => {
      const id = idOf();
      const size = (world.volumes.find(OWNER, id)?.size ?? 0) + Math.floor(random() * 50);
      return act(() => world.volumes.update(OWNER, id, { size }).catch(() => {}));
    },
    () => {
      const id = idOf();
      return act(() => world.volumes.remove(OWNER, id).catch(() => {}));
    },
    () => act(() => world.observe()),
    () => act(() => world.observe()),
    restart,
    // A jump while the platform is down cannot be told from time that passed.
    async () => {
      world.cut = undefined;
      await act(() => world.observe());
      clock.startFrom(clock.now() + (pick([5_000, HOUR_MS, 3 * DAY_MS]) ?? 0));
      if (random() < 0.5) await act(() => world.observe());
      else {
        const id = idOf();
        await act(() => world.volumes.update(OWNER, id, { name: 'w' }).catch(() => {}));
        await act(() => world.observe());
      }
    },
    () => clock.advance(pass(Math.floor(random() * 5_000))),
    () => clock.advance(pass(Math.floor(random() * 5 * HOUR_MS))),
  ];
  for (let step = 0; step < 60; step++) {
    if (random() < 0.2) world.cut = random() < 0.5 ? 'before' : 'after';
    await pick(events)?.();
  }
  world.cut = undefined;
  await act(() => world.observe());
  const { days, hours } = await world.rows();
  for (const rows of [days, hours]) {
    for (const [id, own] of parts) {
      const billed = rows.filter((row) => row.id === id);
      const due = own.filter(({ price }) => price > 0);
      expect(billed.reduce((sum, { ms }) => sum + ms, 0)).toBe(
        due.reduce((sum, { ms }) => sum + ms, 0),
      );
      // Each change of the price rounds once, down or up.
      const exact = due.reduce((sum, { ms, price }) => sum + BigInt(ms) * BigInt(price), 0n);
      const units = billed.reduce((sum, row) => sum + row.units, 0n);
      const error = units * BigInt(MONTH_HOURS) - exact;
      expect(Math.abs(Number(error))).toBeLessThanOrEqual((due.length + 1) * MONTH_HOURS);
    }
    expect(rows.every(({ id }) => parts.has(id))).toBe(true);
  }
});
