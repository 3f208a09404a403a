import { describe, expect, it } from 'vitest';
import {
  allJobColumns,
  compareRows,
  imageColumns,
  listImageValues,
  readJob,
} from '../../../../src/store/sql/job-row.ts';
import type { Row, StoredJob } from '../../../../src/store/store.ts';
import { makeJob } from '../../../support/store/stored-jobs.ts';

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
