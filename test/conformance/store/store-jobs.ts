// Jobs: every field, changes, removal, and the shares of their groups.
import { beforeEach, expect, it } from 'vitest';
import type { StoredJob, TakeableJobs } from '../../../src/store/store.ts';
import { addJobs, ENDPOINT, INPUT, makeJob, makeLease } from '../../support/store/stored-jobs.ts';
import { bytesOf, idsOf, keyOf, readJob, save, store, textOf } from './store-under-test.ts';

const fullJob: StoredJob = makeJob({
  id: 'sync-full',
  status: 'IN_PROGRESS',
  mode: 'runsync',
  priority: 9,
  group: 'of ä',
  place: 13,
  position: 9_007_199_254_740_991,
  submittedAt: 1_767_225_600_001,
  queuedAt: 1_767_225_600_002,
  availableAt: 1_767_225_600_003,
  delayed: true,
  expiresAt: 1_767_225_600_004,
  ttlMs: 604_800_000,
  executionTimeoutMs: 1_000,
  maxAttempts: 7,
  startedAt: 1_767_225_600_005,
  deadlineAt: 1_767_225_600_006,
  endedAt: 1_767_225_600_007,
  executionMs: 12.5,
  dueAt: 1_767_225_600_008,
  attempt: 5,
  failures: 2,
  releases: 3,
  solo: true,
  lease: makeLease({ started: true, lost: 'release' }),
  lastSeq: 6,
  chunkCount: 8,
  chunkBytes: 4_000_000_000,
  cursorAttempt: 4,
  cursorNext: 10,
  outputKind: 'chunks',
  logBytes: 11,
  logDropped: 12,
  error: {
    code: 'handler_error',
    message: 'naïve “boom”?',
    type: 'TypeError',
    stack: 'at x',
    attempts: [],
  },
  history: [
    {
      attempt: 1,
      code: 'lease_expired',
      message: 'm',
      workerId: 'worker-0',
      startedAt: 98,
      endedAt: 99,
    },
  ],
  notes: [{ at: 98, event: 'first_chunk', attempt: 1 }],
  progress: '{"percent":10}',
  usage: { gpu: { seconds: 1.5, vramPeakBytes: 8e10, shared: false } },
  workerId: 'worker-1',
  idempotencyKey: 'key',
  requestHash: 'hash',
  traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  tracestate: 'vendor=state',
  webhook: 'https://example.com/done?job=ä',
  attachment: { format: 'runpod', handlerData: '{"bucketName":"ä"}' },
});

const odd = 'a\0b\x10\x100\x101\x7f';
const withControlCharacters = {
  idempotencyKey: odd,
  progress: JSON.stringify(odd),
  tracestate: odd,
  webhook: odd,
  error: { code: 'handler_error' as const, message: odd, attempts: [] },
};

export function describeJobs(): void {
  it.each([
    ['with every field set', fullJob],
    ['with required fields only', makeJob({ id: 'a' })],
    ['with control characters in its texts', makeJob({ id: 'a', ...withControlCharacters })],
  ])('returns %s unchanged', async (_, job) => {
    await addJobs(store, [job]);
    expect(await readJob(job.id)).toEqual(job);
  });

  const changes = Object.entries(fullJob).filter(
    ([field]) => field !== 'id' && field !== 'endpointId',
  );
  it.each(changes)('is saved when its %s changes and changes back', async (field, to) => {
    const before = makeJob({ id: 'a' });
    await addJobs(store, [before]);
    const after = await save(before, { [field]: to });
    expect(await readJob('a')).toEqual(after);
    await save(after, before);
    expect(await readJob('a')).toEqual(before);
  });

  it('keeps every field of its lease', async () => {
    const before = makeJob({ id: 'a', lease: makeLease() });
    await addJobs(store, [before]);
    const lease = makeLease({
      token: 't2',
      workerId: 'w2',
      incarnation: 2,
      takeId: 'k2',
      until: 3,
    });
    const after = await save(before, { lease: { ...lease, started: true, lost: 'failure' } });
    expect(await readJob('a')).toEqual(after);
  });

  it('is saved without a change to other jobs', async () => {
    const other = { ...makeJob({ id: 'a' }), endpointId: 'ep_other' };
    const [a, b] = [makeJob({ id: 'a' }), makeJob({ id: 'b' })];
    await addJobs(store, [a, b, other]);
    await save(a, { attempt: 4 });
    expect((await readJob('b'))?.attempt).toBe(0);
    expect((await store.read((tx) => tx.job(other)))?.attempt).toBe(0);
  });

  it('is found by its idempotency key on its endpoint only', async () => {
    await addJobs(store, [
      makeJob({ id: 'a', idempotencyKey: 'k' }),
      { ...makeJob({ id: 'b', idempotencyKey: 'k' }), endpointId: 'ep_other' },
      makeJob({ id: 'c' }),
    ]);
    const find = (endpointId: string, key: string) =>
      store.read((tx) => tx.jobByIdempotencyKey(endpointId, key));
    expect((await find(ENDPOINT, 'k'))?.id).toBe('a');
    expect((await find('ep_other', 'k'))?.id).toBe('b');
    expect(await find(ENDPOINT, 'unknown')).toBeUndefined();
  });

  it('is found by an idempotency key with control characters', async () => {
    await addJobs(store, [
      makeJob({ id: 'a', idempotencyKey: 'k\0' }),
      makeJob({ id: 'b', idempotencyKey: 'k\x10' }),
      makeJob({ id: 'c', idempotencyKey: 'k\x100' }),
    ]);
    const find = (key: string) => store.read((tx) => tx.jobByIdempotencyKey(ENDPOINT, key));
    expect((await find('k\0'))?.id).toBe('a');
    expect((await find('k\x10'))?.id).toBe('b');
    expect((await find('k\x100'))?.id).toBe('c');
  });

  it('is refused if another job of the endpoint has its idempotency key', async () => {
    await addJobs(store, [makeJob({ id: 'a', idempotencyKey: 'k' })]);
    await expect(addJobs(store, [makeJob({ id: 'b', idempotencyKey: 'k' })])).rejects.toThrow();
  });

  it('is removed with all of its data, and other jobs are kept', async () => {
    const [a, b] = [makeJob({ id: 'a' }), makeJob({ id: 'b' })];
    await addJobs(store, [a, b]);
    await store.write((tx) => {
      for (const { id } of [a, b]) {
        tx.putOutput(keyOf(id), bytesOf('1'));
        const batch = { first: 0, sizes: [2], bytes: bytesOf('{}') };
        tx.appendChunks({ ...keyOf(id), attempt: 1 }, batch);
        tx.appendLog(keyOf(id), 0, bytesOf('line\n'));
      }
      tx.removeJob(a);
    });
    const list = (id: string) =>
      store.read((tx) => {
        const job = tx.job(keyOf(id));
        const input = tx.input(keyOf(id));
        const output = tx.output(keyOf(id));
        const range = { ...keyOf(id), attempt: 1, from: 0, maxBytes: 100 };
        const chunks = tx.chunks(range);
        const log = tx.log(range);
        return [job?.id, textOf(input), textOf(output), chunks.length, textOf(log)];
      });
    expect(await list('a')).toEqual([undefined, undefined, undefined, 0, '']);
    expect(await list('b')).toEqual(['b', textOf(INPUT), '1', 1, 'line\n']);
  });
}

let position = 0;

/** The name of the group, if there is one, and a number. */
const nameOf = (group: string | null) => `${group ?? 'none'}-${position}`;

async function submit(
  group: string | null,
  count = 1,
  changes: Partial<StoredJob> = {},
): Promise<string[]> {
  const ids: string[] = [];
  await store.write((tx) => {
    for (let i = 0; i < count; i++) {
      const place = { endpointId: ENDPOINT, priority: changes.priority ?? 0, group };
      position++;
      const job = makeJob({
        ...{ id: nameOf(group), ...place, position, ...changes },
      });
      ids.push(job.id);
      tx.insertJob(job, INPUT);
    }
  });
  return ids;
}

/** Leases the next jobs. @returns their groups */
async function lease(count: number, groupLimit?: number): Promise<(string | null)[]> {
  const groups: (string | null)[] = [];
  // A store with few jobs in memory returns them bit by bit.
  for (let hasMore = true; hasMore; ) {
    const taken = await take(count - groups.length, groupLimit);
    groups.push(...taken.jobs.map(({ group }) => group));
    ({ hasMore } = taken);
  }
  return groups;
}

/** Time of the operations. */
let now = 0;

function leasedOf(job: StoredJob): StoredJob {
  const lease = makeLease({ token: job.id });
  return { ...job, status: 'IN_PROGRESS', startedAt: now, executionMs: null, lease };
}

function take(limit: number, groupLimit?: number): Promise<TakeableJobs> {
  return store.write((tx) => {
    const found = tx.takeableJobs({ endpointId: ENDPOINT, limit, now, groupLimit });
    for (const job of found.jobs) tx.saveJob(job, leasedOf(job), 0);
    return found;
  });
}

async function end(id: string, executionMs = 1): Promise<void> {
  const job = await readJob(id);
  if (job) await save(job, { status: 'COMPLETED', lease: null, executionMs });
}

export function describeGroups(): void {
  beforeEach(() => {
    position = 0;
    now = 0;
  });

  it('alternate, whatever each of them has queued, while nothing is known of their jobs', async () => {
    await submit('a', 5);
    await submit('b', 2);
    await submit('c');
    expect(await lease(9)).toEqual(['a', 'b', 'c', 'a', 'b', 'a', 'a', 'a']);
  });

  it.each([
    { runMs: { long: 1_000, short: 10 }, text: 'whose jobs take as long as 100 of the other' },
    { runMs: { long: 3, short: 2 }, text: 'whose jobs take half as long again' },
  ])('get the same time as one $text', async ({ runMs }) => {
    await submit('long', 30);
    await submit('short', 400);
    const used = { long: 0, short: 0 };
    for (let i = 0; i < 300; i++) {
      const { jobs } = await take(1);
      const group = jobs[0]?.group === 'long' ? 'long' : 'short';
      now += runMs[group];
      used[group] += runMs[group];
      await end(jobs[0]?.id ?? '', runMs[group]);
      if (used.long >= 25 * runMs.long) break;
      if (i > 10) expect(Math.abs(used.long - used.short)).toBeLessThanOrEqual(runMs.long + 1_000);
    }
  });

  it('begin behind what the others run already', async () => {
    await submit('a', 8);
    expect(await lease(3)).toEqual(['a', 'a', 'a']);
    await submit('b', 4);
    // Three jobs of a run.
    expect(await lease(3)).toEqual(['b', 'b', 'b']);
    expect(await lease(3)).toEqual(['a', 'b', 'a']);
  });

  it('share each priority for itself', async () => {
    await submit('a', 3);
    await submit('a', 2, { priority: 5 });
    await submit('b', 1);
    await submit('b', 1, { priority: 5 });
    expect(await lease(3)).toEqual(['a', 'b', 'a']);
    expect(await lease(9)).toEqual(['a', 'b', 'a', 'a']);
  });

  it('have all jobs without a group as one more group', async () => {
    await submit(null, 4);
    await submit('a', 2);
    expect(await lease(9)).toEqual([null, 'a', null, 'a', null, null]);
  });

  it('count their valid leases', async () => {
    const [first = ''] = await submit('a', 3);
    await submit('b');
    const count = (group?: string) => store.read((tx) => tx.countLeases(ENDPOINT, group));
    expect(await count('a')).toBe(0);
    await lease(3);
    expect([await count('a'), await count('b'), await count('c')]).toEqual([2, 1, 0]);
    expect(await count()).toBe(3);
    await end(first);
    expect([await count('a'), await count()]).toEqual([1, 2]);
  });

  it('have nothing of an operation that failed', async () => {
    await submit('a', 2);
    const refused = store.write((tx) => {
      const place = { endpointId: ENDPOINT, priority: 9, group: 'a' };
      tx.insertJob(makeJob({ id: 'refused', ...place, position: 99 }), INPUT);
      throw new Error('refused');
    });
    await expect(refused).rejects.toThrow('refused');
    expect(await lease(9)).toEqual(['a', 'a']);
  });

  it('run their jobs in the order of their places', async () => {
    const [first = '', second] = await submit('a', 3);
    const job = await readJob(first);
    if (!job) throw new Error('it was submitted');
    await save(job, { place: 9 });
    expect(idsOf((await take(1)).jobs)).toEqual([second]);
    await submit('b');
    expect(await lease(9)).toEqual(['b', 'a', 'a']);
  });

  it('are leased up to their limit, in the order of the queue', async () => {
    await submit('a', 5);
    await submit('b', 3);
    await submit(null, 3);
    const groups = await lease(9, 2);
    expect(new Set(groups.slice(0, 3))).toEqual(new Set(['a', 'b', null]));
    expect(groups.toSorted()).toEqual(['a', 'a', 'b', 'b', null, null, null]);
    expect(await take(9, 2)).toEqual({ jobs: [], isBlocked: true, hasMore: false });
  });

  it('are leased again when one of their leases ends or is lost', async () => {
    const a = await submit('a', 6);
    await submit('b', 2);
    await take(9, 2);
    await end(a[0] ?? '');
    expect(idsOf((await take(9, 2)).jobs)).toEqual([a[2]]);
    const lost = await readJob(a[1] ?? '');
    if (!lost?.lease) throw new Error('it was leased');
    await save(lost, { status: 'IN_QUEUE', lease: { ...lost.lease, lost: 'failure' } });
    // In its own place, which is before the others.
    expect(idsOf((await take(9, 2)).jobs)).toEqual([a[1]]);
  });

  it('count a cancelled job until its worker has stopped it', async () => {
    const [first = '', second] = await submit('a', 2);
    await take(1, 1);
    const job = await readJob(first);
    if (!job) throw new Error('it was submitted');
    const cancelled = await save(job, { status: 'CANCELLED' });
    expect((await take(1, 1)).jobs).toEqual([]);
    await save(cancelled, { lease: null });
    expect(idsOf((await take(1, 1)).jobs)).toEqual([second]);
  });

  it('do not keep others waiting behind any number of their jobs', async () => {
    await submit('a', 300);
    await submit(null, 2, { priority: -1 });
    const groups: (string | null)[] = [];
    for (let i = 0; i < 20 && groups.length < 3; i++) {
      groups.push(...(await take(3, 1)).jobs.map(({ group }) => group));
    }
    expect(groups).toEqual(['a', null, null]);
  });

  it('are passed over at once, however many of their jobs wait', async () => {
    await submit('a', 3_000);
    const [wanted] = await submit(null, 1, { priority: -1 });
    expect(await lease(1, 1)).toEqual(['a']);
    expect((await take(1, 1)).jobs).toMatchObject([{ id: wanted }]);
    expect(await take(1, 1)).toEqual({ jobs: [], isBlocked: true, hasMore: false });
  });

  it('are found in several commits after a start, however many there are', async () => {
    const places = Array.from({ length: 2_500 }, (_, i) => ({ group: `g${i}`, position: i }));
    await addJobs(
      store,
      places.map((place) => makeJob({ id: place.group, ...place })),
    );
    const found = await take(1);
    expect(found).toMatchObject({ jobs: [], hasMore: true });
    expect(await lease(3)).toHaveLength(3);
  });

  it('have a changed limit from the next take on', async () => {
    const a = await submit('a', 30);
    await take(9, 1);
    expect(idsOf((await take(9, 4)).jobs)).toEqual(a.slice(1, 4));
    expect((await take(9, 2)).jobs).toEqual([]);
    expect(await lease(2)).toEqual(['a', 'a']);
  });

  it('let a more urgent job in front', async () => {
    const [first = ''] = await submit('a', 20);
    await take(9, 1);
    const [urgent] = await submit('a', 1, { priority: 3 });
    expect((await take(9, 1)).jobs).toEqual([]);
    await end(first);
    expect(idsOf((await take(9, 1)).jobs)).toEqual([urgent]);
  });
}
