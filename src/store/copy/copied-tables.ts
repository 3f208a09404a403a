// The tables of a database that is copied: their columns, and their rows in pages.
import { FILE_COLUMN, selectUsed } from '../sql/payload-parts.ts';
import { number, text, UnreadableRowError } from '../sql/rows.ts';
import type { Row, SqlValue, Step } from '../store.ts';

export interface TableShape {
  name: string;
  /** In alphabetical order. */
  columns: readonly string[];
  /** Columns of the primary key, in its order. */
  key: readonly string[];
  /** Columns of texts or bytes, which may be long. */
  long: readonly string[];
}

/** Tables that describe the database itself. */
const OWN_TABLES: ReadonlySet<string> = new Set(['copy_state', 'last_commit', 'schema_version']);

/** Statements for one kind of database. The rows have `table`, `column`, `type` and `key`: 1 for the key's first one. */
export type Catalog = () => Step<readonly Row[]>;

export function* readSqliteCatalog(): Step<readonly Row[]> {
  return yield {
    sql: `select t.name as "table", c.name as "column", lower(c.type) as type, c.pk as "key"
      from sqlite_schema as t, pragma_table_info(t.name) as c
      where t.type = 'table' and t.name not like 'sqlite_%'`,
    params: [],
  };
}

export function* readPostgresCatalog(): Step<readonly Row[]> {
  return yield {
    sql: `select t.relname::text as "table", c.attname::text as "column",
        format_type(c.atttypid, null) as type,
        coalesce(array_position(k.indkey::int2[], c.attnum) + 1, 0) as "key"
      from pg_class t
      join pg_attribute c on c.attrelid = t.oid and c.attnum > 0 and not c.attisdropped
      left join pg_index k on k.indrelid = t.oid and k.indisprimary
      where t.relkind in ('r', 'p') and t.relnamespace = current_schema()::regnamespace`,
    params: [],
  };
}

/** Sorted by name. */
export function shapeTables(rows: readonly Row[]): TableShape[] {
  const byTable = Map.groupBy(rows, (row) => text(row, 'table'));
  return [...byTable]
    .filter(([name]) => !OWN_TABLES.has(name))
    .map(([name, columns]) => shapeTable(name, columns))
    .toSorted((a, b) => compare(a.name, b.name));
}

function shapeTable(name: string, columns: readonly Row[]): TableShape {
  const names = (chosen: readonly Row[]) => chosen.map((row) => text(row, 'column'));
  const key = columns
    .filter((row) => number(row, 'key') > 0)
    .toSorted((a, b) => number(a, 'key') - number(b, 'key'));
  return {
    name,
    columns: names(columns).toSorted(compare),
    key: names(key),
    long: names(columns.filter((row) => /^(text|blob|bytea)$/.test(text(row, 'type')))),
  };
}

/** What the database lacks of the tables; undefined if it has all. It may have tables of others besides. */
export function findLack(
  tables: readonly TableShape[],
  found: readonly TableShape[],
): string | undefined {
  const has = new Set(found.map(describe));
  const lacking = tables.map(describe).filter((table) => !has.has(table));
  return lacking.length === 0 ? undefined : lacking.join('; ');
}

function describe({ columns, key, name }: TableShape): string {
  return `${name} (${columns.join(', ')}; key ${key.join(', ')})`;
}

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

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
