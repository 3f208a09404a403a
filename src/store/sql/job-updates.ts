// The statements that change rows of jobs: they write only the columns that differ.
import type { Query, SqlValue, StoredJob } from '../store.ts';
import { imageColumns, jobColumns, listJobValues } from './job-row.ts';

const OUTPUT_BIT = 2 ** jobColumns.length;
const COLUMN_BITS = jobColumns.map((_, index) => 2 ** index);

/** Update statements by the set of columns that they write. A queue needs a few dozen of them. */
const updates = new Map<number, string>();

/**
 * Updates only the columns that differ: indexes over other columns then stay untouched, which is
 * most of the cost of an update. Returns nothing if no column differs. `output`: a small one to
 * store with the change.
 */
export function describeChange(
  before: StoredJob,
  after: StoredJob,
  output?: Uint8Array,
): Query | undefined {
  const { columns, values } = compareJobs(before, after, output);
  if (columns === 0) return undefined;
  values.push(after.endpointId, after.id);
  return { sql: findUpdate(columns), params: values };
}

/** The columns that differ, as bits, and their new values, in the order of `imageColumns`. */
export function compareJobs(
  before: StoredJob,
  after: StoredJob,
  output?: Uint8Array,
): { columns: number; values: SqlValue[] } {
  const old = listJobValues(before);
  const now = listJobValues(after);
  const values: SqlValue[] = [];
  let columns = 0;
  for (let i = 0; i < now.length; i++) {
    const value = now[i];
    if (value === undefined || value === old[i]) continue;
    values.push(value);
    columns += COLUMN_BITS[i] ?? 0;
  }
  if (output) {
    values.push(output);
    columns += OUTPUT_BIT;
  }
  return { columns, values };
}

function findUpdate(columns: number): string {
  const known = updates.get(columns);
  if (known !== undefined) return known;
  const sql = `${beginUpdate(columns)} where endpoint_id = ? and id = ?`;
  updates.set(columns, sql);
  return sql;
}

function beginUpdate(columns: number): string {
  const names = listColumns(columns).map((index) => `${imageColumns[index]} = ?`);
  return `update job set ${names.join(', ')}`;
}

/** A set of columns as indexes into `imageColumns`, ascending. */
export function listColumns(columns: number): number[] {
  return imageColumns.flatMap((name, index) => {
    // A change has no input.
    const bit = name === 'output' ? OUTPUT_BIT : 2 ** index;
    return name !== 'input' && Math.floor(columns / bit) % 2 === 1 ? [index] : [];
  });
}
