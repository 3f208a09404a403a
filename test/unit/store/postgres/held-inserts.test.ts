import { expect, it } from 'vitest';
import { HeldInserts } from '../../../../src/store/postgres/batch.ts';

const LOG = 'insert into job_log (endpoint_id, job_id, at, bytes) values (?, ?, ?, ?)';

function logOf(job: number, bytes = 1) {
  return { sql: LOG, params: ['e', `j${job}`, 0, new Uint8Array(bytes)] };
}

it('joins rows of a table into statements of a few sizes', () => {
  const held = new HeldInserts();
  for (let job = 0; job < 43; job++) expect(held.hold(logOf(job))).toBe(true);
  const queries = held.take();
  expect(queries.map(({ params }) => params.length / 4)).toEqual([32, 8, 2, 1]);
  expect(queries.flatMap(({ params }) => params.filter((_, i) => i % 4 === 1))).toEqual(
    Array.from({ length: 43 }, (_, job) => `j${job}`),
  );
  expect(queries[2]?.sql).toBe(`${LOG}, (?, ?, ?, ?)`);
  expect(queries[3]?.sql).toBe(LOG);
  expect(held.take()).toEqual([]);
});

it.each([
  'update job set status = ?',
  'insert into job (id) values (?)',
  'insert into job_log (at) values (?) on conflict do nothing',
  'insert into job_log (at) values (?) returning at',
  'insert into job_log (at) select ?',
])('does not hold %s', (sql) => {
  expect(new HeldInserts().hold({ sql, params: [1] })).toBe(false);
});

it('does not hold a large row, nor many bytes', () => {
  const held = new HeldInserts();
  expect(held.hold(logOf(0, 65_537))).toBe(false);
  for (let job = 0; job < 16; job++) expect(held.hold(logOf(job, 65_536))).toBe(true);
  expect(held.hold(logOf(16))).toBe(false);
  held.take();
  expect(held.hold(logOf(16))).toBe(true);
});
