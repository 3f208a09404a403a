// Shares of groups in GPU time, in a real queue: workers run jobs whose run times differ 100-fold, with time that the test
// controls.
import { describe, expect, it, onTestFinished } from 'vitest';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../src/store/store.ts';
import type { Lease } from '../../../src/wire/link/worker-link.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { MemoryStore } from '../../simulation/memory-store.ts';
import { completed, ENDPOINT, Hand, Platform } from '../../support/queue-platform.ts';
import { createRandom } from '../../support/random.ts';

interface Customer {
  group: string;
  /** Run time of its next job, ms. */
  runMs: () => number;
  /** Jobs that it keeps waiting. Default 20. */
  waiting?: number;
}

interface Running {
  lease: Lease;
  group: string;
  runMs: number;
  endsAt: number;
  /** Until then its time is counted. */
  countedAt: number;
}

/** Workers of one slot each, and customers who submit a job whenever one of theirs starts. */
class Stand {
  readonly platform: Platform;
  readonly #customers: Map<string, Customer>;
  readonly #hands: { hand: Hand; gpus: number; running: Running | undefined }[] = [];
  /** GPU ms of each group, running jobs included. */
  #used = new Map<string, number>();
  /** Longest time for which the next job of a group has waited, by group, ms. */
  readonly waits = new Map<string, number>();
  readonly #lastStart = new Map<string, number>();

  constructor(customers: readonly Customer[], platform: Platform) {
    this.platform = platform;
    this.#customers = new Map(customers.map((customer) => [customer.group, customer]));
  }

  static async open(
    customers: readonly Customer[],
    {
      gpus = [1],
      groupWeights = null,
      live = {},
      store = openSqliteStore({ path: ':memory:', live }),
    }: {
      gpus?: number[];
      groupWeights?: Record<string, number> | null;
      live?: { windowJobs?: number; readyJobs?: number };
      store?: Store;
    } = {},
  ): Promise<Stand> {
    const endpoint = { groupWeights, maxQueued: 1_000_000 };
    const platform = new Platform({ store, endpoint, settings: { leaseMs: 600_000 } });
    onTestFinished(() => platform.close());
    await platform.start();
    const stand = new Stand(customers, platform);
    for (const [index, count] of gpus.entries()) await stand.addWorker(`w${index}`, count);
    for (const { group, waiting = 20 } of customers) await stand.submit(group, waiting);
    return stand;
  }

  async addWorker(id: string, gpus: number): Promise<void> {
    const hand = new Hand(() => this.platform.queue.link(ENDPOINT), { id, slots: 1 });
    const device = (index: number) => ({
      ...{ kind: 'gpu', index, uuid: `GPU-${id}-${index}`, name: 'GPU', memoryBytes: 1 },
    });
    const devices = Array.from({ length: gpus }, (_, index) => device(index));
    await hand.hello([], undefined, { devices });
    this.#hands.push({ hand, gpus, running: undefined });
  }

  async submit(group: string, count = 1, priority = 0): Promise<void> {
    const input = Buffer.from(JSON.stringify(group));
    const policy = { ...(group !== '' && { group }), priority };
    await Promise.all(Array.from({ length: count }, () => this.platform.submit(policy, input)));
  }

  /** What the groups have used since the last call, GPU ms. */
  takeUsed(): Map<string, number> {
    const now = this.platform.clock.now();
    for (const { gpus, running } of this.#hands) {
      if (!running) continue;
      this.#count(running.group, gpus * (now - running.countedAt));
      running.countedAt = now;
    }
    const used = this.#used;
    this.#used = new Map();
    return used;
  }

  /** Runs for so many ms. */
  async run(ms: number): Promise<void> {
    const { clock } = this.platform;
    const until = clock.now() + ms;
    for (;;) {
      for (const slot of this.#hands)
        if (!slot.running) slot.running = await this.#start(slot.hand);
      const ends = this.#hands.map(({ running }) => running?.endsAt ?? Number.POSITIVE_INFINITY);
      const next = Math.min(...ends, until);
      await clock.advance(next - clock.now());
      for (const slot of this.#hands) {
        const { gpus, hand, running } = slot;
        if (!running || running.endsAt > clock.now()) continue;
        this.#count(running.group, gpus * (clock.now() - running.countedAt));
        slot.running = undefined;
        await hand.finish(running.lease, { ...completed, executionMs: running.runMs });
      }
      if (clock.now() >= until) return;
    }
  }

  async setWeights(groupWeights: Record<string, number>): Promise<void> {
    const settings = endpointSettings.parse({ maxQueued: 1_000_000, groupWeights });
    const endpoint = { id: ENDPOINT, settings, createdAt: 1 };
    await this.platform.store.write((tx) => tx.putEndpoint(endpoint));
  }

  async restart(): Promise<void> {
    await this.platform.restart();
    for (const { hand } of this.#hands) await hand.hello();
  }

  async #start(hand: Hand): Promise<Running | undefined> {
    const [lease] = await hand.take();
    if (!lease) return undefined;
    const group: string = JSON.parse(Buffer.from(lease.input).toString());
    const customer = this.#customers.get(group);
    const now = this.platform.clock.now();
    const waitedMs = now - (this.#lastStart.get(group) ?? now);
    this.waits.set(group, Math.max(waitedMs, this.waits.get(group) ?? 0));
    this.#lastStart.set(group, now);
    if (customer?.waiting !== 0) await this.submit(group);
    const runMs = customer?.runMs() ?? 1;
    return { lease, group, runMs, endsAt: now + runMs, countedAt: now };
  }

  #count(group: string, ms: number): void {
    this.#used.set(group, (this.#used.get(group) ?? 0) + ms);
  }
}

/** Jain's index: 1 if all have the same, 1/n if one of n has all. */
function jain(values: readonly number[]): number {
  const sum = values.reduce((a, b) => a + b, 0);
  const squares = values.reduce((a, b) => a + b * b, 0);
  return (sum * sum) / (values.length * squares);
}

function indexOf(
  used: ReadonlyMap<string, number>,
  groups: readonly string[],
  weights: Readonly<Record<string, number>> = {},
): number {
  return jain(groups.map((group) => (used.get(group) ?? 0) / (weights[group] ?? 1)));
}

const always = (ms: number) => () => ms;
const FIVE_MINUTES = 300_000;

describe('groups with jobs that differ 100-fold', () => {
  const customers = [
    { group: 'a', runMs: always(100) },
    { group: 'b', runMs: always(1_000) },
    { group: 'c', runMs: always(3_000) },
    { group: 'd', runMs: always(10_000) },
  ];
  const groups = customers.map(({ group }) => group);

  it.each([
    { gpus: [1], text: 'one GPU' },
    { gpus: [1, 1, 1], text: 'three GPUs' },
    { gpus: [1, 4], text: 'workers of one and of four GPUs' },
  ])('share five minutes of $text', async ({ gpus }) => {
    const stand = await Stand.open(customers, { gpus });
    const count = gpus.reduce((a, b) => a + b, 0);
    await stand.run(FIVE_MINUTES / count);
    expect(indexOf(stand.takeUsed(), groups)).toBeGreaterThan(0.98);
  });

  it('share them by their weights', async () => {
    const groupWeights = { b: 3, d: 2 };
    const stand = await Stand.open(customers, { groupWeights });
    await stand.run(FIVE_MINUTES);
    expect(indexOf(stand.takeUsed(), groups, groupWeights)).toBeGreaterThan(0.98);
  });

  it('have other weights from the next job on', async () => {
    const stand = await Stand.open(customers);
    await stand.run(60_000);
    await stand.setWeights({ a: 5 });
    stand.takeUsed();
    await stand.run(FIVE_MINUTES);
    expect(indexOf(stand.takeUsed(), groups, { a: 5 })).toBeGreaterThan(0.98);
  });

  it('share them with the jobs that have no group', async () => {
    const stand = await Stand.open([{ group: '', runMs: always(50) }, ...customers]);
    await stand.run(FIVE_MINUTES);
    expect(indexOf(stand.takeUsed(), ['', ...groups])).toBeGreaterThan(0.98);
  });

  it('share them while the platform restarts every ten seconds', async () => {
    const store = new MemoryStore();
    const stand = await Stand.open(customers, { store });
    for (let restarts = 0; restarts < 30; restarts++) {
      await stand.run(10_000);
      store.restart();
      await stand.restart();
    }
    expect(indexOf(stand.takeUsed(), groups)).toBeGreaterThan(0.98);
  });

  it('share them with few jobs in memory', async () => {
    const stand = await Stand.open(customers, { live: { windowJobs: 2, readyJobs: 4 } });
    await stand.run(FIVE_MINUTES);
    expect(indexOf(stand.takeUsed(), groups)).toBeGreaterThan(0.98);
  });
});

describe('groups', () => {
  it.each(Array.from({ length: 6 }, (_, seed) => seed + 1))(
    'share the time whatever their jobs take, and none waits long, seed %i',
    async (seed) => {
      const random = createRandom(seed);
      const customers = Array.from({ length: 2 + Math.floor(random() * 5) }, (_, index) => {
        const meanMs = 100 * 60 ** random();
        return { group: `g${index}`, runMs: () => Math.ceil(2 * meanMs * random()) };
      });
      const gpus = Array.from({ length: 1 + Math.floor(random() * 3) }, () => 1);
      const stand = await Stand.open(customers, { gpus });
      await stand.run(FIVE_MINUTES / gpus.length);
      const groups = customers.map(({ group }) => group);
      expect(indexOf(stand.takeUsed(), groups)).toBeGreaterThan(0.98);
      // The longest job of each other group, and one's own: none takes more than 12 s.
      for (const ms of stand.waits.values())
        expect(ms).toBeLessThan(groups.length * 12_000 + 12_000);
    },
  );

  it('save nothing while they are idle', async () => {
    const stand = await Stand.open([
      { group: 'busy', runMs: always(1_000) },
      { group: 'late', runMs: always(1_000), waiting: 0 },
    ]);
    await stand.run(60_000);
    stand.takeUsed();
    await stand.submit('late', 100);
    await stand.run(20_000);
    const used = stand.takeUsed();
    expect(used.get('late')).toBeGreaterThanOrEqual(9_000);
    expect(used.get('late')).toBeLessThanOrEqual(12_000);
  });

  it('pay for a long job while it runs', async () => {
    const stand = await Stand.open(
      [
        { group: 'long', runMs: always(60_000), waiting: 0 },
        { group: 'short', runMs: always(500), waiting: 0 },
      ],
      { gpus: [1, 1] },
    );
    await stand.submit('long');
    await stand.run(1_000);
    await stand.submit('long', 10);
    await stand.submit('short', 500);
    // One worker runs the long job; the other one belongs to the other group, but for a job of unknown length.
    await stand.run(2_000);
    stand.takeUsed();
    await stand.run(40_000);
    expect(stand.takeUsed()).toEqual(
      new Map([
        ['long', 40_000],
        ['short', 40_000],
      ]),
    );
  });

  it('keep what they have used over a start on another process', async () => {
    const store = new MemoryStore();
    const stand = await Stand.open(
      [
        { group: 'long', runMs: always(60_000), waiting: 2 },
        { group: 'short', runMs: always(1_000), waiting: 0 },
      ],
      { store },
    );
    await stand.submit('short');
    await stand.run(30_000);
    await stand.submit('short', 100);
    // The long job ends: the other group, which has waited for half of it, gets as much.
    await stand.run(36_000);
    store.restart();
    await stand.restart();
    stand.takeUsed();
    await stand.run(20_000);
    expect(stand.takeUsed()).toEqual(new Map([['short', 20_000]]));
  });

  it('begin at once with an urgent job, which is charged to its group', async () => {
    const stand = await Stand.open([
      { group: 'a', runMs: always(1_000) },
      { group: 'b', runMs: always(1_000) },
    ]);
    await stand.run(10_500);
    stand.takeUsed();
    await stand.submit('a', 1, 5);
    await stand.run(1_500);
    expect(stand.takeUsed().get('a')).toBeGreaterThanOrEqual(1_000);
  });

  it('save nothing by jobs that come one by one, and are no beginning for a new group', async () => {
    const stand = await Stand.open(
      [
        { group: 'many', runMs: always(1_000) },
        { group: 'few', runMs: always(1_300), waiting: 0 },
        { group: 'late', runMs: always(1_000), waiting: 0 },
      ],
      { gpus: [1, 1, 1, 1, 1, 1] },
    );
    for (let count = 0; count < 200; count++) {
      await stand.submit('few');
      await stand.run(600);
    }
    await stand.submit('late', 200);
    stand.takeUsed();
    await stand.run(10_000);
    expect(stand.takeUsed().get('many')).toBeGreaterThan(22_000);
    await stand.submit('few', 200);
    await stand.run(10_000);
    expect(stand.takeUsed().get('many')).toBeGreaterThan(12_000);
  });

  it('have names that JavaScript gives a meaning', async () => {
    const names = ['constructor', '__proto__', 'a'];
    const stand = await Stand.open(names.map((group) => ({ group, runMs: always(1_000) })));
    await stand.run(60_000);
    const used = stand.takeUsed();
    expect(jain(names.map((group) => used.get(group) ?? 0))).toBeGreaterThan(0.98);
  });
});
