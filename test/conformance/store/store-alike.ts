// Changes of many jobs that are alike.
import { beforeEach, expect, it } from 'vitest';
import type { StoredJob } from '../../../src/store/store.ts';
import { readJob, store } from './store-under-test.ts';
import { addJobs, ENDPOINT, INPUT, makeJob, makeLease } from './stored-jobs.ts';

const first = makeJob({ id: 'job-10', position: 10 });

function cancel(job: StoredJob): StoredJob {
  return { ...job, status: 'CANCELLED', endedAt: 5_000, expiresAt: 9_000, dueAt: 9_000 };
}

function saveAlike(upTo: number, limit = 100): Promise<string[]> {
  return store.write((tx) => tx.saveAlike(first, cancel(first), { upTo, limit }));
}

const alike = [20, 30, 40].map((position) =>
  makeJob({ id: `job-${position}`, position, expiresAt: 9_000 + position, ttlMs: position }),
);

/** Behind the first job, each with a difference. */
const different = [
  { id: 'before', position: 9 },
  { id: 'late', position: 50 },
  { id: 'urgent', priority: 1 },
  { id: 'delayed', delayed: true },
  { id: 'sync', mode: 'runsync' },
  { id: 'tried', attempt: 1 },
  { id: 'held', lease: makeLease({ lost: 'failure' }) },
  { id: 'notifies', webhook: 'https://example.com/' },
  { id: 'short', expiresAt: 8_999 },
  { id: 'ended', status: 'FAILED' },
  { id: 'elsewhere', endpointId: 'ep_other' },
] as const;

const others = different.map((changes) => makeJob({ position: 25, ...changes }));

async function count(): Promise<number[]> {
  const endpoint = await store.read((tx) => tx.endpoint(ENDPOINT));
  return [endpoint?.inQueue ?? 0, endpoint?.cancelled ?? 0];
}

export function describeAlike(): void {
  beforeEach(async () => {
    await addJobs(store, [first, ...alike, ...others]);
  });

  it('change with one of them, and no job that differs', async () => {
    const ids = await saveAlike(40);
    expect(ids.toSorted()).toEqual(['job-10', 'job-20', 'job-30', 'job-40']);
    for (const job of [first, ...alike]) expect(await readJob(job.id)).toEqual(cancel(job));
    for (const job of others) {
      const { endpointId, id } = job;
      expect(await store.read((tx) => tx.job({ endpointId, id }))).toEqual(job);
    }
    expect(await count()).toEqual([9, 4]);
  });

  it.each([
    [1, 1],
    [2, 2],
    // Those at position 25 count too.
    [3, 2],
    [99, 4],
  ])('are looked for among %i queued jobs', async (limit, found) => {
    expect(await saveAlike(40, limit)).toHaveLength(found);
  });

  it('are as before if the operation fails', async () => {
    const [second = first] = alike;
    const refused = store.write(function* (tx) {
      const before = { ...second, attempt: 1 };
      yield* tx.saveJob(second, before, 0);
      yield* tx.saveJob(before, second, 0);
      yield* tx.readyJobs(ENDPOINT, 3);
      yield* tx.saveAlike(first, cancel(first), { upTo: 40, limit: 100 });
      throw new Error('refused');
    });
    await expect(refused).rejects.toThrow('refused');
    for (const job of [first, ...alike]) expect(await readJob(job.id)).toEqual(job);
    expect((await store.read((tx) => tx.endpoint(ENDPOINT)))?.inQueue).toBe(13);
    const ready = await store.write((tx) => tx.readyJobs(ENDPOINT, 4));
    expect(ready.map(({ id }) => id)).toEqual(['urgent', 'before', 'job-10', 'job-20']);
    expect(await saveAlike(40)).toHaveLength(4);
  });

  it('are counted as before if an operation that does nothing else fails', async () => {
    const before = await store.write((tx) => tx.endpoint(ENDPOINT));
    const refused = store.write(function* (tx) {
      yield* tx.saveAlike(first, cancel(first), { upTo: 40, limit: 100 });
      throw new Error('refused');
    });
    const seen = store.write((tx) => tx.endpoint(ENDPOINT));
    await expect(refused).rejects.toThrow('refused');
    expect(await seen).toEqual(before);
    expect(await store.read((tx) => tx.endpoint(ENDPOINT))).toEqual(before);
  });

  it('can be removed after an operation that failed, in the commit that adds them', async () => {
    const added = makeJob({ id: 'added', position: 35 });
    const adding = store.write((tx) => tx.insertJob(added, INPUT));
    const refused = store.write(function* (tx) {
      const ids = yield* tx.saveAlike(first, cancel(first), { upTo: 40, limit: 100 });
      throw new Error(`refused ${ids.length}`);
    });
    const removal = store.write((tx) => tx.removeJob(added));
    await adding;
    await expect(refused).rejects.toThrow('refused 5');
    await removal;
    expect(await readJob('added')).toBeUndefined();
  });

  it('are no longer ready, and can change further in the same operation', async () => {
    const seen = await store.write(function* (tx) {
      yield* tx.readyJobs(ENDPOINT, 10);
      const [second = first] = alike;
      // A change that the database does not have yet.
      const prolonged = { ...second, expiresAt: 50_000 };
      yield* tx.saveJob(second, prolonged, 0);
      yield* tx.saveAlike(first, cancel(first), { upTo: 40, limit: 100 });
      const ready = yield* tx.readyJobs(ENDPOINT, 10);
      const job = yield* tx.job(second);
      if (job) yield* tx.saveJob(job, { ...job, expiresAt: 50_000, dueAt: 50_000 }, 0);
      return { ready: ready.map(({ id }) => id), job, endpoint: yield* tx.endpoint(ENDPOINT) };
    });
    expect(seen.ready).not.toContain('job-20');
    expect(seen.ready).toContain('late');
    expect(seen.job).toMatchObject({ status: 'CANCELLED', expiresAt: 9_000 });
    expect(seen.endpoint).toMatchObject({ inQueue: 9, cancelled: 4 });
    const job = await readJob('job-20');
    expect(job).toMatchObject({ status: 'CANCELLED', expiresAt: 50_000, dueAt: 50_000 });
    const list = { endpointId: ENDPOINT, status: 'CANCELLED', before: undefined } as const;
    const listed = await store.read((tx) => tx.jobs({ ...list, limit: 10 }));
    expect(listed.map(({ expiresAt }) => expiresAt)).toEqual([9_000, 9_000, 50_000, 9_000]);
  });
}
