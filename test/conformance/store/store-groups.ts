// Groups of jobs: their turns, and the limit of their leases.
import { beforeEach, expect, it } from 'vitest';
import { NEXT_TURN, NO_TURN, type StoredJob, type TakeableJobs } from '../../../src/store/store.ts';
import { ENDPOINT, INPUT, makeJob, makeLease } from '../../support/store/stored-jobs.ts';
import { idsOf, readJob, save, store } from './store-under-test.ts';

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
    const count = (group: string) => store.read((tx) => tx.countGroupLeases(ENDPOINT, group));
    expect(await count('a')).toBe(0);
    await lease(3);
    expect([await count('a'), await count('b'), await count('c')]).toEqual([2, 1, 0]);
    await end(first);
    expect(await count('a')).toBe(1);
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
