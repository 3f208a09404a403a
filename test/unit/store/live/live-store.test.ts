// Cases of the live jobs that a review found.
import { expect, it, vi } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { createParts } from '../../../../src/queue/queue-parts.ts';
import { Submissions } from '../../../../src/queue/submissions.ts';
import { openSqlite, openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { SqliteConnection } from '../../../../src/store/sqlite/sqlite-connection.ts';
import { StoreUnavailableError } from '../../../../src/store/store.ts';
import { endpointSettings } from '../../../../src/wire/resources/endpoint.ts';
import { MemoryStore } from '../../../simulation/memory-store.ts';
import type { MemoryTables } from '../../../simulation/memory-tables.ts';
import {
  addEndpoint,
  addJobs,
  ENDPOINT,
  INPUT,
  makeJob,
  makeLease,
} from '../../../support/store/stored-jobs.ts';

const ALL = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 10 };

it('writes each row once, however many operations of the batch are refused', async () => {
  const found: MemoryTables[] = [];
  const store = new MemoryStore({ onSettled: ({ tables }) => found.push(tables) });
  await addEndpoint(store);
  await addJobs(store, [makeJob({ id: 'first', idempotencyKey: 'k' })]);
  await store.read((tx) => tx.endpoint(ENDPOINT));
  const [tables] = found;
  if (!tables) throw new Error('no commit');
  const addJobRows = vi.spyOn(tables, 'addJobRows');
  const operations = Array.from({ length: 10 }, (_, i) => [
    store.write((tx) => tx.insertJob(makeJob({ id: `job-${i}`, position: i }), INPUT)),
    store.write((tx) => {
      tx.endpoint(ENDPOINT);
      tx.endpoint('unknown');
      if (tx.jobByIdempotencyKey(ENDPOINT, 'k')) throw new Error('refused');
    }),
  ]);
  const results = await Promise.allSettled(operations.flat());
  expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(10);
  expect(addJobRows).toHaveBeenCalledTimes(10);
});

it('finds jobs of the same batch by their idempotency keys', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  await addEndpoint(store);
  const job = makeJob({ id: 'a', idempotencyKey: 'k' });
  const found = await store.write((tx) => {
    tx.insertJob(job, INPUT);
    const inserted = tx.jobByIdempotencyKey(ENDPOINT, 'k');
    tx.removeJob(job);
    return [inserted, tx.jobByIdempotencyKey(ENDPOINT, 'k')];
  });
  expect(found).toEqual([job, undefined]);
  await store.close();
});

it('forgets the input of a submission that ran twice', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  await addEndpoint(store);
  await addJobs(store, [makeJob({ id: 'twice' })]);
  const clock = new ManualClock();
  const parts = createParts({ store, clock, log: silentLog }, new AbortController().signal);
  const { arrivals } = parts;
  const submissions = new Submissions(parts);
  const again = store.write((tx) => tx.insertJob(makeJob({ id: 'twice' }), INPUT));
  const submitted = submissions.submit({
    ...{ endpointId: ENDPOINT, mode: 'run', policy: {}, idempotency: undefined },
    input: INPUT,
  });
  await expect(again).rejects.toThrow('UNIQUE');
  await submitted;
  expect(arrivals.size).toBe(0);
  await store.close();
});

it('keeps a job complete if the commit of its removal fails', async () => {
  let fails = false;
  const store = new MemoryStore({ failsCommit: () => fails });
  await addEndpoint(store);
  const history = [
    {
      attempt: 1,
      code: 'thread_crashed' as const,
      message: 'm',
      workerId: 'w',
      startedAt: 0,
      endedAt: 1,
    },
  ];
  const running = { status: 'IN_PROGRESS', lease: makeLease() } as const;
  const job = makeJob({ id: 'job-1', ...running, history, progress: '1' });
  await addJobs(store, [job]);
  fails = true;
  const removal = store.write((tx) => {
    for (const each of tx.jobs(ALL)) tx.removeJob(each);
  });
  await expect(removal).rejects.toThrow('The commit failed');
  fails = false;
  expect(await store.read((tx) => tx.job(job))).toEqual(job);
});

it('keeps the leases of an endpoint that is removed and added again in one commit', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  await addEndpoint(store);
  await store.read((tx) => tx.leasedJobs());
  await store.write((tx) => {
    tx.removeEndpoint(ENDPOINT);
    tx.putEndpoint({ id: ENDPOINT, settings: endpointSettings.parse({}), createdAt: 1 });
    const leased = makeJob({ id: 'j', status: 'IN_PROGRESS', lease: makeLease() });
    tx.insertJob(leased, INPUT);
  });
  expect(await store.read((tx) => tx.leasedJobs())).toHaveLength(1);
  await store.close();
});

it('stores a small output after a query has written the row', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  await addEndpoint(store);
  const job = makeJob({ id: 'job-1' });
  await Promise.all([
    store.write((tx) => tx.insertJob(job, INPUT)),
    store.write((tx) => tx.queuedJobs(ENDPOINT, 1)),
    store.write((tx) => tx.putOutput(job, INPUT)),
  ]);
  expect(await store.read((tx) => tx.output(job))).toEqual(INPUT);
  await store.close();
});

it('keeps no large progress of leased jobs in memory, and reads it when it is asked for', async () => {
  const known: unknown[] = [];
  const key = { endpointId: ENDPOINT, id: 'job-1' };
  const store = new MemoryStore({ onSettled: ({ live }) => known.push(live.job(key)) });
  await addEndpoint(store);
  const progress = JSON.stringify('x'.repeat(60_000));
  const job = makeJob({
    id: 'job-1',
    status: 'IN_PROGRESS',
    lease: makeLease(),
    progress,
    dueAt: 5,
  });
  await addJobs(store, [job]);
  expect(known.at(-1)).toBe('unknown');
  expect(await store.read((tx) => tx.dueJobs(9, 1))).toEqual([job]);
});

it('fails only the operation whose row cannot be read', async () => {
  const { driver, store } = openSqlite({ path: ':memory:' });
  await addEndpoint(store);
  await addJobs(store, [makeJob({ id: 'bad', delayed: true })]);
  await driver.write(function* () {
    yield { sql: "update job set body = '{'", params: [] };
  });
  const before = driver.commits;
  const write = (id: string) => store.write((tx) => tx.insertJob(makeJob({ id }), INPUT));
  const results = await Promise.allSettled([
    write('a'),
    store.write((tx) => tx.job({ endpointId: ENDPOINT, id: 'bad' })),
    write('b'),
  ]);
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(driver.commits - before).toBe(1);
  await store.close();
});

it('ends an operation that asks something else in each run', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  let runs = 0;
  const endless = store.write((tx) => tx.worker(ENDPOINT, `w${runs++}`));
  await expect(endless).rejects.toThrow('never ends');
  await store.close();
});

it('makes the store unavailable to an operation during whose read the disk fails', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  const read = vi.spyOn(SqliteConnection.prototype, 'run').mockImplementationOnce(() => {
    throw Object.assign(new Error('disk I/O error'), { code: 'ERR_SQLITE_ERROR', errcode: 10 });
  });
  const asked = store.write((tx) => tx.worker(ENDPOINT, 'w'));
  await expect(asked).rejects.toBeInstanceOf(StoreUnavailableError);
  read.mockRestore();
  expect(await store.write((tx) => tx.worker(ENDPOINT, 'w'))).toBeUndefined();
  await store.close();
});
