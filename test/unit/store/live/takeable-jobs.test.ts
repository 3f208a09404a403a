// Random operations on jobs of groups with a limit, on a store whose commits fail now and then: what can be taken is
// always what a model finds in the tables.
import { describe, expect, it } from 'vitest';
import type { Step, StoredJob, Transaction } from '../../../../src/store/store.ts';
import { MemoryStore } from '../../../simulation/memory-store.ts';
import type { MemoryTables } from '../../../simulation/memory-tables.ts';
import { createRandom } from '../../../support/random.ts';
import { addEndpoint, ENDPOINT, makeJob, makeLease } from '../../../support/store/stored-jobs.ts';

const INPUT = new TextEncoder().encode('{}');
const GROUPS = ['a', 'b', 'c', null];

class Refused extends Error {}

/** Finishes a step that asks no database. */
function finish<T>(steps: Step<T>): T {
  const step = steps.next();
  if (!step.done) throw new Error(`unexpected query: ${step.value.sql}`);
  return step.value;
}

/** How many jobs of each priority can be taken at once: of each group as many as its limit allows. */
function countTakeable(
  jobs: readonly StoredJob[],
  limit: number,
  groupLimit: number,
): Map<number, number> {
  const held = new Map<string | null, number>();
  const count = (group: string | null) => held.set(group, (held.get(group) ?? 0) + 1);
  for (const { group, lease } of jobs) if (lease && lease.lost === null) count(group);
  const ready = jobs.filter((job) => job.status === 'IN_QUEUE' && !job.delayed);
  const counts = new Map<number, number>();
  let left = limit;
  for (const { group, priority } of ready.toSorted((a, b) => b.priority - a.priority)) {
    if (left === 0) break;
    if (group !== null && (held.get(group) ?? 0) >= groupLimit) continue;
    count(group);
    counts.set(priority, (counts.get(priority) ?? 0) + 1);
    left -= 1;
  }
  return counts;
}

/** Each is before all others of its group that are ready. */
function expectOrder(found: readonly StoredJob[], jobs: readonly StoredJob[]): void {
  const ready = new Map(
    jobs.filter((job) => job.status === 'IN_QUEUE' && !job.delayed).map((job) => [job.id, job]),
  );
  for (const { group, id, priority } of found) {
    const own = [...ready.values()].filter(
      (job) => job.group === group && job.priority === priority,
    );
    expect(own.toSorted((a, b) => a.place - b.place)[0]?.id).toBe(id);
    ready.delete(id);
  }
}

class Player {
  readonly #random: () => number;
  readonly #store: MemoryStore;
  #tables: MemoryTables | undefined;
  #count = 0;
  groupLimit = 2;
  looks = 0;

  constructor(seed: number) {
    this.#random = createRandom(seed);
    this.#store = new MemoryStore({
      ...{ windowJobs: 3, readyJobs: 8, endedJobs: 2 },
      failsCommit: () => this.#below(6) === 0,
      onSettled: ({ tables }) => {
        this.#tables = tables;
      },
    });
  }

  async play(turns: number): Promise<void> {
    while (!this.#tables || !finish(this.#tables.endpoint(ENDPOINT))) {
      await this.#try(() => addEndpoint(this.#store));
    }
    for (let turn = 0; turn < turns; turn++) {
      const operations = Array.from({ length: 1 + this.#below(3) }, (_, i) =>
        this.#try(() => this.#store.write((tx) => this.#act(tx, i === 0))),
      );
      await Promise.all(operations);
      if (this.#below(20) === 0) this.#store.restart();
    }
    await this.#store.close();
  }

  async #try(act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      if (error instanceof Refused) return;
      expect(error).toMatchObject({ name: 'StoreUnavailableError' });
    }
  }

  #jobs(): StoredJob[] {
    const all = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 1_000 };
    return this.#tables ? finish(this.#tables.jobs(all)) : [];
  }

  /** `isFirst`: the tables have all changes of the operations before. */
  #act(tx: Transaction, isFirst: boolean): void {
    if (this.#below(12) === 0) this.groupLimit = 1 + this.#below(4);
    if (isFirst) this.#look(tx);
    for (let step = 0; step < 1 + this.#below(3); step++) this.#change(tx);
    if (this.#below(6) === 0) throw new Refused();
  }

  #look(tx: Transaction): void {
    const limit = 1 + this.#below(5);
    const { groupLimit } = this;
    const request = { endpointId: ENDPOINT, limit, groupLimit, now: 0 };
    const all = this.#jobs();
    const { hasMore, jobs } = tx.takeableJobs(request);
    this.looks++;
    // Fewer than there are, if the search read too many rows.
    const expected = countTakeable(all, hasMore ? jobs.length : limit, groupLimit);
    const found = Map.groupBy(jobs, ({ priority }) => priority);
    expect(new Map([...found].map(([priority, { length }]) => [priority, length]))).toEqual(
      expected,
    );
    if (hasMore) expect(jobs.length).toBeGreaterThan(0);
    expectOrder(jobs, all);
    if (this.#below(2) === 0) return;
    for (const job of jobs) {
      tx.saveJob(job, { ...job, status: 'IN_PROGRESS', lease: makeLease() }, 0);
    }
  }

  #change(tx: Transaction): void {
    if (this.#below(5) < 3) {
      this.#insert(tx);
      return;
    }
    const jobs = this.#jobs();
    const chosen = jobs[this.#below(jobs.length)];
    const job = chosen && tx.job(chosen);
    if (!job) return;
    const dice = this.#below(8);
    const isOpen = job.status === 'IN_QUEUE' || job.status === 'IN_PROGRESS';
    if (dice === 0) tx.removeJob(job);
    else if (!isOpen) return;
    else if (dice <= 2) tx.saveJob(job, { ...job, status: 'CANCELLED' }, 0);
    else if (!job.lease) return;
    else if (dice === 3) {
      const lease = { ...job.lease, lost: 'failure' as const };
      tx.saveJob(job, { ...job, status: 'IN_QUEUE', lease }, 0);
    } else if (dice === 4) {
      tx.saveJob(job, { ...job, status: 'IN_QUEUE', lease: null }, 0);
    } else tx.saveJob(job, { ...job, status: 'COMPLETED', lease: null }, 0);
  }

  #insert(tx: Transaction): void {
    if (this.#below(2) === 0) tx.endpoint(ENDPOINT);
    const lane = {
      endpointId: ENDPOINT,
      group: GROUPS[this.#below(GROUPS.length)] ?? null,
      priority: this.#below(2),
    };
    for (let i = 0; i < 1 + this.#below(4); i++) {
      const position = ++this.#count;
      tx.insertJob(makeJob({ id: `job-${position}`, ...lane, position }), INPUT);
    }
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }
}

describe('takeable jobs', () => {
  it.each(Array.from({ length: 30 }, (_, seed) => seed + 1))(
    'are those of a model, seed %i',
    async (seed) => {
      const player = new Player(seed);
      await player.play(100);
      expect(player.looks).toBeGreaterThan(0);
    },
  );

  it('are all found by searches that are cut short', async () => {
    const store = new MemoryStore();
    await addEndpoint(store);
    const groups = 2_500;
    await store.write((tx) => {
      for (let position = 1; position <= groups; position++) {
        const group = `g${position}`;
        tx.insertJob(makeJob({ id: `job-${position}`, group, position }), INPUT);
      }
    });
    store.restart();
    const leased = new Set<string>();
    let cut = 0;
    for (let hasMore = true; hasMore || leased.size < groups; ) {
      const before = leased.size;
      const found = await store.write((tx) => {
        const takeable = tx.takeableJobs({
          endpointId: ENDPOINT,
          limit: 100,
          groupLimit: 1,
          now: 0,
        });
        for (const job of takeable.jobs) {
          tx.saveJob(job, { ...job, status: 'IN_PROGRESS', lease: makeLease() }, 0);
        }
        return takeable;
      });
      for (const { id } of found.jobs) leased.add(id);
      ({ hasMore } = found);
      const isCut = found.jobs.length < Math.min(100, groups - before);
      // A take that gets too few and is not told that there are more waits for an event.
      if (isCut) expect(hasMore).toBe(true);
      if (isCut) cut += 1;
    }
    expect(cut).toBeGreaterThan(1);
    await store.close();
  });
});
