// Reads the rows of a table in the order of their keys, in batches of bounded size, and writes them.
import { FILE_COLUMN, selectUsed } from '../sql/payload-parts.ts';
import { number, UnreadableRowError } from '../sql/rows.ts';
import type { Row, SqlValue, Step } from '../store.ts';
import type { TableShape } from './table-shapes.ts';

/** A batch has at most so many rows, and so many bytes unless its first row has more. */
export interface BatchBounds {
  rows: number;
  bytes: number;
}

export type Key = readonly SqlValue[];

/** Rows behind the key, or from the table's start. Empty at the table's end. */
export function* readRows(
  table: TableShape,
  after: Key | undefined,
  bounds: BatchBounds,
): Step<readonly Row[]> {
  const where = after === undefined ? '' : `where (${table.key}) > (${table.key.map(() => '?')})`;
  const order = `${where} order by ${table.key} limit ?`;
  // A database knows the size of a value without reading the value.
  const sizes = table.long.map((column) => `coalesce(octet_length(${column}), 0)`);
  if (table.columns.includes(FILE_COLUMN)) sizes.push(`coalesce(${FILE_COLUMN}, 0)`);
  const size = sizes.join(' + ');
  const found = yield {
    sql: `select ${size === '' ? '0' : size} as bytes from ${table.name} ${order}`,
    params: [...(after ?? []), bounds.rows],
  };
  if (found.length === 0) return [];
  const rows = countFitting(found, bounds.bytes);
  return yield {
    sql: `select ${table.columns}${selectUsed(table.name)} from ${table.name} ${order}`,
    params: [...(after ?? []), rows],
  };
}

/** At least one. */
function countFitting(sizes: readonly Row[], maxBytes: number): number {
  let total = 0;
  const end = sizes.findIndex((row, index) => {
    total += number(row, 'bytes');
    return index > 0 && total > maxBytes;
  });
  return end < 0 ? sizes.length : end;
}

export function* insertRows(table: TableShape, rows: readonly Row[]): Step<void> {
  const { columns, name } = table;
  const sql = `insert into ${name} (${columns}) values (${columns.map(() => '?')})`;
  for (const row of rows) yield { sql, params: readValues(row, columns) };
}

export function readKey(row: Row, { key }: TableShape): Key {
  return readValues(row, key);
}

function readValues(row: Row, columns: readonly string[]): SqlValue[] {
  return columns.map((column) => readValue(column, row[column]));
}

function readValue(column: string, value: unknown): SqlValue {
  if (typeof value === 'string' || typeof value === 'number' || value === null) return value;
  if (value instanceof Uint8Array) return value;
  throw new UnreadableRowError(column, 'text, a number, bytes or null', value);
}

export function* countRows({ name }: TableShape): Step<number> {
  const [row = {}] = yield { sql: `select count(*) as n from ${name}`, params: [] };
  return number(row, 'n');
}

/** Tables that have a row. */
export function* listFilled(tables: readonly TableShape[]): Step<string[]> {
  const filled: string[] = [];
  for (const { name } of tables) {
    const rows = yield { sql: `select 1 as n from ${name} limit 1`, params: [] };
    if (rows.length > 0) filled.push(name);
  }
  return filled;
}
