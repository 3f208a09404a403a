// Random operations on a store whose commits fail now and then: what is in memory always equals the database.
import { describe, expect, it } from 'vitest';
import { count, isZero, noCounts } from '../../../../src/store/live/live-endpoint.ts';
import type { LiveJobs } from '../../../../src/store/live/live-jobs.ts';
import type { Step, StoredJob, Transaction } from '../../../../src/store/store.ts';
import { endpointSettings } from '../../../../src/wire/resources/endpoint.ts';
import { MemoryStore } from '../../../simulation/memory-store.ts';
import type { MemoryTables } from '../../../simulation/memory-tables.ts';
import { createRandom } from '../../../support/random.ts';
import {
  addEndpoint,
  addJobs,
  ENDPOINT,
  makeJob,
  makeLease,
} from '../../../support/store/stored-jobs.ts';

const OTHER = 'ep_other';
const LIVE = { windowJobs: 3, readyJobs: 5, endedJobs: 2 };
const INPUT = new TextEncoder().encode('{}');

class Refused extends Error {}

/** Finishes a step that asks no database. */
function finish<T>(steps: Step<T>): T {
  const step = steps.next();
  if (!step.done) throw new Error(`unexpected query: ${step.value.sql}`);
  return step.value;
}

function compare(live: LiveJobs, tables: MemoryTables): void {
  const endpoints = live.endpoints();
  if (endpoints) expect(endpoints).toEqual(finish(tables.endpoints()));
  for (const endpointId of [ENDPOINT, OTHER]) {
    const known = live.endpoint(endpointId);
    if (known) expect(known).toEqual(finish(tables.endpoint(endpointId)));
    const all = finish(
      tables.jobs({ endpointId, status: undefined, before: undefined, limit: 1_000 }),
    );
    for (const { id } of all) {
      const job = live.job({ endpointId, id });
      if (job !== 'unknown') expect(job).toEqual(finish(tables.job({ endpointId, id })));
    }
  }
}

class Player {
  readonly #random: () => number;
  readonly #store: MemoryStore;
  readonly #ids: string[] = [];
  failures = 0;
  loads = 0;

  constructor(seed: number) {
    this.#random = createRandom(seed);
    this.#store = new MemoryStore({
      ...LIVE,
      failsCommit: () => this.#below(5) === 0,
      onSettled: ({ live, tables }) => compare(live, tables),
    });
  }

  async play(turns: number): Promise<void> {
    for (const id of [ENDPOINT, OTHER]) await this.#addEndpoint(id);
    for (let turn = 0; turn < turns; turn++) {
      const operations = Array.from({ length: 1 + this.#below(4) }, () => this.#operate());
      const results = await Promise.allSettled(operations);
      for (const result of results) {
        if (result.status === 'fulfilled') continue;
        if (result.reason instanceof Refused) continue;
        expect(result.reason).toMatchObject({ name: 'StoreUnavailableError' });
        this.failures++;
      }
    }
    await this.#store.close();
  }

  async #addEndpoint(id: string): Promise<void> {
    try {
      await addEndpoint(this.#store, id);
    } catch {
      await this.#addEndpoint(id);
    }
  }

  #operate(): Promise<void> {
    const steps = 1 + this.#below(3);
    return this.#store.write((tx) => this.#act(tx, steps));
  }

  #act(tx: Transaction, steps: number): void {
    if (this.#below(4) === 0) tx.endpoints();
    if (this.#below(3) === 0) this.#lease(tx);
    for (let step = 0; step < steps; step++) this.#change(tx);
    if (this.#below(8) === 0) this.#configure(tx);
    if (this.#below(6) === 0) throw new Refused();
  }

  #change(tx: Transaction): void {
    const endpointId = this.#below(4) === 0 ? OTHER : ENDPOINT;
    const dice = this.#below(8);
    if (dice < 4) {
      this.#insert(tx, endpointId);
      return;
    }
    const id = this.#ids[this.#below(this.#ids.length)] ?? 'none';
    const job = tx.job({ endpointId, id });
    if (!job) return;
    if (dice < 5) tx.removeJob(job);
    else tx.saveJob(job, this.#next(job), this.#below(2));
  }

  #lease(tx: Transaction): void {
    const endpointId = this.#below(4) === 0 ? OTHER : ENDPOINT;
    const request = { endpointId, limit: 1 + this.#below(3), now: 0 };
    for (const job of tx.takeableJobs(request).jobs) {
      tx.saveJob(job, { ...job, status: 'IN_PROGRESS', lease: makeLease() }, 0);
    }
    this.loads++;
  }

  #configure(tx: Transaction): void {
    const settings = endpointSettings.parse({ maxAttempts: 1 + this.#below(9) });
    tx.putEndpoint({ id: ENDPOINT, settings, createdAt: 1 });
  }

  #insert(tx: Transaction, endpointId: string): void {
    const id = `job-${this.#ids.length}`;
    this.#ids.push(id);
    const position = 1_000 * this.#below(50) + this.#ids.length;
    const place = { position, priority: this.#below(2) };
    tx.insertJob(makeJob({ id, endpointId, ...place }), INPUT);
    if (this.#below(2)) tx.endpoint(endpointId);
  }

  #next(job: StoredJob): StoredJob {
    switch (this.#below(4)) {
      case 0:
        return { ...job, status: 'IN_QUEUE', delayed: this.#below(3) === 0, lease: null };
      case 1:
        return { ...job, status: 'COMPLETED', lease: null };
      case 2:
        return { ...job, status: 'FAILED', lease: null, attempt: job.attempt + 1 };
      default:
        return { ...job, status: 'CANCELLED' };
    }
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }
}

describe('jobs in memory', () => {
  it.each(Array.from({ length: 40 }, (_, seed) => seed + 1))(
    'equal the database after every commit, seed %i',
    async (seed) => {
      const player = new Player(seed);
      await player.play(60);
      expect(player.failures).toBeGreaterThan(0);
      expect(player.loads).toBeGreaterThan(0);
    },
  );

  it('are dropped when a window that has all ready jobs grows too far', async () => {
    const ids = Array.from({ length: 9 }, (_, i) => `job-${i}`);
    let kept: string[] = [];
    const store = new MemoryStore({
      windowJobs: 2,
      onSettled: ({ live }) => {
        kept = ids.filter((id) => live.job({ endpointId: ENDPOINT, id }) !== 'unknown');
      },
    });
    await addEndpoint(store);
    await store.write((tx) => tx.takeableJobs({ endpointId: ENDPOINT, limit: 1, now: 0 }));
    const jobs = ids.map((id, position) => makeJob({ id, position }));
    await addJobs(store, jobs.slice(0, 8));
    expect(kept).toEqual(ids.slice(0, 8));
    await addJobs(store, jobs.slice(8));
    expect(kept).toEqual(ids.slice(0, 2));
  });

  it('are dropped beyond the bounds, and read again', async () => {
    const known = (live: LiveJobs) =>
      ids.filter((id) => live.job({ endpointId: ENDPOINT, id }) !== 'unknown');
    let kept: string[] = [];
    const store = new MemoryStore({
      windowJobs: 2,
      endedJobs: 3,
      onSettled: ({ live }) => {
        kept = known(live);
      },
    });
    const ids = Array.from({ length: 20 }, (_, i) => `job-${i + 10}`);
    const write = (operation: (tx: Transaction) => void) => store.write(operation);
    await addEndpoint(store);
    await addJobs(
      store,
      ids.map((id, position) => makeJob({ id, position })),
    );
    expect(kept).toEqual([]);
    await write((tx) => {
      tx.takeableJobs({ endpointId: ENDPOINT, limit: 1, now: 0 });
    });
    expect(kept).toEqual(['job-10', 'job-11', 'job-12']);
    for (const id of ids) {
      await write((tx) => {
        const job = tx.job({ endpointId: ENDPOINT, id });
        if (job) tx.saveJob(job, { ...job, status: 'COMPLETED' }, 0);
      });
      expect(kept.length).toBeLessThanOrEqual(2 * 3 + 2);
    }
    expect(kept).toContain('job-29');
    expect(kept).not.toContain('job-10');
    const found = await store.read((tx) => tx.job({ endpointId: ENDPOINT, id: 'job-10' }));
    expect(found?.status).toBe('COMPLETED');
  });
});

describe('the counts of an endpoint', () => {
  it('counts of a job that was added and removed need no write', () => {
    const counts = noCounts();
    expect(isZero(counts)).toBe(true);
    count(counts, { before: undefined, after: makeJob({ id: 'a' }), retried: 0 });
    expect(counts).toEqual({ ...noCounts(), inQueue: 1 });
    expect(isZero(counts)).toBe(false);
    count(counts, { before: makeJob({ id: 'a' }), after: undefined, retried: 0 });
    expect(isZero(counts)).toBe(true);
  });
});
