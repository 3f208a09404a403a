import { describe, expect, it } from 'vitest';
import {
  allJobColumns,
  compareRows,
  imageColumns,
  listImageValues,
  readJob,
} from '../../../../src/store/sql/job-row.ts';
import {
  bytes,
  number,
  numberOrNull,
  text,
  textOrNull,
  UnreadableRowError,
} from '../../../../src/store/sql/rows.ts';
import { removeJobs } from '../../../../src/store/sql/sql-tables.ts';
import { splitKeys, writeList } from '../../../../src/store/sql/unused-payloads.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Row, StoredJob } from '../../../../src/store/store.ts';
import { addEndpoint, deleteUnused, makeJob } from '../../../support/store/stored-jobs.ts';

function unreadable(column: string) {
  const message = expect.stringContaining(`"${column}"`);
  return expect.objectContaining({ name: UnreadableRowError.name, message });
}

describe('a value of a row', () => {
  it('is a number even if the database returns a bigint or decimal text', () => {
    const row = { a: 1, b: 1_767_225_600_001n, c: '1767225600001', d: null };
    expect(['a', 'b', 'c'].map((column) => number(row, column))).toEqual([
      1, 1_767_225_600_001, 1_767_225_600_001,
    ]);
    expect(numberOrNull(row, 'd')).toBeNull();
    expect(numberOrNull(row, 'c')).toBe(1_767_225_600_001);
  });

  it('is refused with the name of its column if it has the wrong type', () => {
    const row = { a: 'x', b: 5, c: null };
    expect(() => number(row, 'a')).toThrow(unreadable('a'));
    expect(() => number(row, 'c')).toThrow(unreadable('c'));
    expect(() => text(row, 'b')).toThrow(unreadable('b'));
    expect(() => text(row, 'missing')).toThrow(unreadable('missing'));
    expect(() => textOrNull(row, 'b')).toThrow(unreadable('b'));
    expect(() => bytes(row, 'a')).toThrow(unreadable('a'));
  });
});

function toRow(job: StoredJob): Row {
  const values = listImageValues(job, {});
  return Object.fromEntries(imageColumns.map((name, at) => [name, values[at] ?? null]));
}

const fresh = makeJob({ id: 'a' });

describe('a row of a job', () => {
  it('leaves out what all fresh jobs have', () => {
    const row = toRow(fresh);
    expect(row['details']).toBeNull();
    expect(String(row['body'])).not.toMatch(/lease|endedAt|attempt|chunk|null/);
  });

  it('is refused if another version wrote its texts', () => {
    for (const column of ['body', 'details']) {
      expect(() => readJob({ ...toRow(fresh), [column]: '{"v":2}' })).toThrow(
        `Column "${column}" should hold a text of version 1`,
      );
    }
  });

  it('changes in the columns that differ', () => {
    const lease = { token: 't', workerId: 'w', incarnation: 1, takeId: 'x', until: 2 };
    const leased: StoredJob = { ...fresh, lease: { ...lease, started: false, lost: null } };
    const namesOf = (before: StoredJob, after: StoredJob) =>
      compareRows(before, after, undefined).columns.map((index) => imageColumns[index]);
    expect(namesOf(fresh, leased)).toEqual(['worker', 'leased', 'body']);
    expect(namesOf(leased, { ...leased, progress: '1' })).toEqual(['body', 'details']);
    expect(namesOf(fresh, fresh)).toEqual([]);
  });

  it('selects every column but the payloads', () => {
    expect([...allJobColumns.split(', '), 'input', 'output']).toEqual([...imageColumns]);
  });
});

describe('the removal of a job', () => {
  const listJobs = (count: number) =>
    Array.from({ length: count }, (_, position) => makeJob({ id: `job-${position}`, position }));

  /** The statements of a removal from tables without rows. */
  function listStatements(jobs: number): string[] {
    const steps = removeJobs(listJobs(jobs));
    const statements: string[] = [];
    for (let step = steps.next(); !step.done; step = steps.next([]))
      statements.push(step.value.sql);
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
});
