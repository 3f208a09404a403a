// The statements that insert jobs one by one. A job that no worker has had needs a third of the parameters.
import type { Query, SqlValue, StoredJob } from '../store.ts';
import { type InlinePayloads, imageColumns, listImageValues } from './job-row.ts';

type Column = (typeof imageColumns)[number];

/** What all jobs have until their first lease. */
const FRESH: ReadonlyMap<Column, string | number | null> = new Map<Column, string | number | null>([
  ['status', 'IN_QUEUE'],
  ['started_at', null],
  ['deadline_at', null],
  ['ended_at', null],
  ['execution_ms', null],
  ['attempt', 0],
  ['failures', 0],
  ['releases', 0],
  ['solo', 0],
  ['lease_token', null],
  ['lease_worker', null],
  ['lease_incarnation', null],
  ['lease_take', null],
  ['lease_until', null],
  ['lease_started', null],
  ['lease_lost', null],
  ['last_seq', 0],
  ['chunk_count', 0],
  ['chunk_bytes', 0],
  ['cursor_attempt', 0],
  ['cursor_next', 0],
  ['output_kind', 'none'],
  ['log_bytes', 0],
  ['log_dropped', 0],
  ['error', null],
  ['history', null],
  ['progress', null],
  ['worker_id', null],
  ['output', null],
]);

/** Undefined: the column differs between fresh jobs. */
const freshValues = imageColumns.map((name) => FRESH.get(name));

const insertFresh = writeInsert(freshValues.map((value) => toLiteral(value) ?? '?'));
const insertAny = writeInsert(imageColumns.map(() => '?'));

export function describeInsert(job: StoredJob, payloads: InlinePayloads): Query {
  const values = listImageValues(job, payloads);
  const params: SqlValue[] = [];
  for (let i = 0; i < values.length; i++) {
    const value = values[i] ?? null;
    const fresh = freshValues[i];
    if (fresh === undefined) params.push(value);
    else if (fresh !== value) return { sql: insertAny, params: values };
  }
  return { sql: insertFresh, params };
}

function toLiteral(value: string | number | null | undefined): string | undefined {
  if (value === undefined) return undefined;
  return typeof value === 'string' ? `'${value}'` : String(value);
}

function writeInsert(values: readonly string[]): string {
  return `insert into job (${imageColumns.join(', ')}) values (${values.join(', ')})`;
}
