import { expect, it } from 'vitest';
import { removeJobs } from '../../../../src/store/sql/sql-tables.ts';
import { splitKeys, writeList } from '../../../../src/store/sql/unused-payloads.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { addEndpoint, deleteUnused, makeJob } from '../../../support/store/stored-jobs.ts';

const listJobs = (count: number) =>
  Array.from({ length: count }, (_, position) => makeJob({ id: `job-${position}`, position }));

/** The statements of a removal from tables without rows. */
function listStatements(jobs: number): string[] {
  const steps = removeJobs(listJobs(jobs));
  const statements: string[] = [];
  for (let step = steps.next(); !step.done; step = steps.next([])) statements.push(step.value.sql);
  return statements;
}

it('removes 32 jobs with as many statements as one', () => {
  expect(listStatements(32)).toHaveLength(listStatements(1).length);
  expect(listStatements(33)).toHaveLength(2 * listStatements(1).length);
});

it('has few different statements', () => {
  const all = new Set<string>();
  for (let jobs = 1; jobs <= 70; jobs++) for (const sql of listStatements(jobs)) all.add(sql);
  expect(all.size).toBe(2 * listStatements(1).length);
});

it('splits keys into lists of two lengths that have each key', () => {
  for (const count of [0, 1, 2, 31, 32, 33, 34, 64, 65]) {
    const keys = Array.from({ length: count }, (_, index) => `${index}`);
    const lists = splitKeys(keys);
    expect([...new Set(lists.flat())]).toEqual(keys);
    for (const list of lists) {
      expect([1, 32]).toContain(list.length);
      expect(writeList(list.length).split('?')).toHaveLength(list.length + 1);
    }
  }
});

it('deletes at most 1 MB of payloads at once', async () => {
  const store = openSqliteStore({ path: ':memory:' });
  await addEndpoint(store);
  const jobs = listJobs(32);
  await store.write((tx) => {
    for (const job of jobs) tx.insertJob(job, new Uint8Array(200_000));
  });
  await store.write((tx) => {
    for (const job of jobs) tx.removeJob(job);
  });
  expect(await store.read((tx) => tx.unusedPayloads(100))).toHaveLength(27);
  await deleteUnused(store);
  expect(await store.read((tx) => tx.unusedPayloads(100))).toEqual([]);
  await store.close();
});
