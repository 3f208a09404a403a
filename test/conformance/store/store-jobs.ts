// Jobs: every field, changes, removal, and the turns of their groups.
import { beforeEach, expect, it } from 'vitest';
import { NEXT_TURN, NO_TURN, type StoredJob, type TakeableJobs } from '../../../src/store/store.ts';
import { addJobs, ENDPOINT, INPUT, makeJob, makeLease } from '../../support/store/stored-jobs.ts';
import { bytesOf, idsOf, keyOf, readJob, save, store, textOf } from './store-under-test.ts';

const fullJob: StoredJob = makeJob({
  id: 'sync-full',
  status: 'IN_PROGRESS',
  mode: 'runsync',
  priority: 9,
  group: 'of ä',
  turn: 13,
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
        ...{ id: nameOf(group), ...place, turn: NEXT_TURN, position, ...changes },
      });
      ids.push(job.id);
      tx.insertJob(job, INPUT);
    }
  });
  return ids;
}

/** Leases the next jobs. @returns their groups */
async function lease(count: number): Promise<(string | null)[]> {
  const leased = await store.write((tx) => {
    const jobs = tx.readyJobs(ENDPOINT, count);
    for (const job of jobs) tx.saveJob(job, leasedOf(job), 0);
    return jobs;
  });
  return leased.map(({ group }) => group);
}

function leasedOf(job: StoredJob): StoredJob {
  return { ...job, status: 'IN_PROGRESS', lease: makeLease({ token: job.id }) };
}

function take(limit: number, groupLimit: number): Promise<TakeableJobs> {
  return store.write((tx) => {
    const found = tx.takeableJobs({ endpointId: ENDPOINT, limit, groupLimit });
    for (const job of found.jobs) tx.saveJob(job, leasedOf(job), 0);
    return found;
  });
}

async function end(id: string): Promise<void> {
  const job = await readJob(id);
  if (job) await save(job, { status: 'COMPLETED', lease: null });
}

export function describeGroups(): void {
  beforeEach(() => {
    position = 0;
  });

  it('take turns, whatever each of them has queued', async () => {
    await submit('a', 5);
    await submit('b', 2);
    await submit('c');
    expect(await lease(9)).toEqual(['a', 'b', 'c', 'a', 'b', 'a', 'a', 'a']);
  });

  it('begin with the turn that is being leased', async () => {
    await submit('a', 8);
    expect(await lease(3)).toEqual(['a', 'a', 'a']);
    await submit('b', 3);
    expect(await lease(2)).toEqual(['a', 'b']);
    expect(await lease(9)).toEqual(['a', 'b', 'a', 'b', 'a', 'a']);
  });

  it('have their own turns in each priority', async () => {
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

  it('keep their turn after an operation that failed', async () => {
    await submit('a', 2);
    const refused = store.write((tx) => {
      const place = { endpointId: ENDPOINT, priority: 0, group: 'a' };
      tx.insertJob(makeJob({ id: 'refused', ...place, turn: NEXT_TURN, position: 99 }), INPUT);
      throw new Error('refused');
    });
    await expect(refused).rejects.toThrow('refused');
    const [id = ''] = await submit('a');
    expect(await readJob(id)).toMatchObject({ turn: 2 });
  });

  it('get back the turns of queued jobs that are cancelled or removed', async () => {
    const [, second = '', third = ''] = await submit('a', 3);
    const job = await readJob(third);
    if (job) await store.write((tx) => tx.removeJob(job));
    const [next = ''] = await submit('a');
    expect(await readJob(next)).toMatchObject({ turn: 2 });
    for (const id of [next, second]) {
      const queued = await readJob(id);
      if (queued) await save(queued, { status: 'CANCELLED' });
    }
    const [last = ''] = await submit('a');
    expect(await readJob(last)).toMatchObject({ turn: 1 });
  });

  it('have no turn for a job that waits for its delay', async () => {
    const [id = ''] = await submit('a', 1, { delayed: true, turn: NO_TURN });
    const [next = ''] = await submit('a');
    expect(await readJob(next)).toMatchObject({ turn: 0 });
    const job = await readJob(id);
    if (!job) throw new Error('it was submitted');
    await store.write((tx) => tx.saveJob(job, { ...job, delayed: false, turn: NEXT_TURN }, 0));
    const [last = ''] = await submit('a');
    expect(await readJob(id)).toMatchObject({ turn: 1 });
    expect(await readJob(last)).toMatchObject({ turn: 2 });
  });

  it('are leased up to their limit, in the order of the queue', async () => {
    await submit('a', 5);
    await submit('b', 3);
    await submit(null, 3);
    const groups: (string | null)[] = [];
    // A store with few jobs in memory returns them bit by bit.
    for (let hasMore = true; hasMore; ) {
      const taken = await take(9 - groups.length, 2);
      groups.push(...taken.jobs.map(({ group }) => group));
      ({ hasMore } = taken);
    }
    expect(groups).toEqual(['a', 'b', null, 'a', 'b', null, null]);
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

  it('are passed over in several commits, however many takes share one', async () => {
    await submit('a', 3_000);
    const [wanted] = await submit(null, 1, { priority: -1 });
    expect(await take(1, 1)).toMatchObject({ jobs: [{ group: 'a' }] });
    const together = await Promise.all(Array.from({ length: 8 }, () => take(1, 1)));
    expect(together.map(({ hasMore, jobs }) => [hasMore, jobs.length])).toEqual(
      together.map(() => [true, 0]),
    );
    let found = await take(1, 1);
    while (found.hasMore && found.jobs.length === 0) found = await take(1, 1);
    expect(found.jobs).toMatchObject([{ id: wanted }]);
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
