// Which tables a database has, with their columns and keys, so that a copy leaves out nothing that a migration added.
import { number, text } from '../sql/rows.ts';
import type { Row, Step } from '../store.ts';

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
