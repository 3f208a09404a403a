// The source or the target of a copy: its driver, its errors explained to the operator, and its rows in batches.
import { closeSync, openSync } from 'node:fs';
import { locatePayloads, type PartFiles, PayloadFolder } from '../disk/payload-files.ts';
import { explainFailure, nameStorageFailure } from '../disk/store-failures.ts';
import type { PostgresTarget } from '../postgres/connection-url.ts';
import { PostgresDriver } from '../postgres/postgres.ts';
import { explainPostgresError } from '../postgres/postgres-errors.ts';
import { Session } from '../postgres/session.ts';
import { FILE_COLUMN, loadParts, selectUsed } from '../sql/payload-parts.ts';
import { number, text, UnreadableRowError } from '../sql/rows.ts';
import type { MemoryState, SqlDriver } from '../sql/sql-store.ts';
import { SqliteDriver } from '../sqlite/sqlite.ts';
import { type Row, type SqlValue, type Step, StoreUnavailableError } from '../store.ts';

export type CopyRole = 'source' | 'target';

/** One of the two databases cannot be used. */
export class CopyError extends Error {
  override readonly name = 'CopyError';
  readonly role: CopyRole;

  constructor(role: CopyRole, problem: string) {
    super(problem);
    this.role = role;
  }
}

/** A count of a large table takes long. */
const STATEMENT_MS = 600_000;
/** The server notices within this time that an earlier copy was killed. */
const LOCK_WAIT_MS = 3_000;
const CONNECT_MS = 10_000;
const CACHE_BYTES = 16 * 1_048_576;
const OWNER_ONLY = 0o600;

const noMemory: MemoryState = {
  forget: () => {},
  *write() {},
  settle: () => {},
};

interface Parts {
  role: CopyRole;
  driver: SqlDriver;
  explain: (error: unknown) => string;
  /** Only SQLite has them. */
  files?: PartFiles;
  /** Whether nodes may share the database. */
  isShared: boolean;
}

interface ClusterRows {
  node: number;
  shard: number;
}

export class CopiedDatabase {
  readonly #parts: Parts;

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Opens the file, and migrates it. The caller has locked its folder. @throws CopyError */
  static openSqlite(role: CopyRole, path: string): CopiedDatabase {
    try {
      closeSync(openSync(path, 'a', OWNER_ONLY));
      const driver = new SqliteDriver({ path, cacheBytes: CACHE_BYTES });
      return new CopiedDatabase({
        role,
        driver,
        explain: explainSqlite,
        files: new PayloadFolder({ folder: locatePayloads(path) }),
        isShared: false,
      });
    } catch (error) {
      throw new CopyError(role, `${path} cannot be used: ${explainSqlite(error)}`);
    }
  }

  /** Connects, takes the lock of the platform, and migrates. @throws CopyError */
  static async openPostgres(role: CopyRole, target: PostgresTarget): Promise<CopiedDatabase> {
    const options = { target, connectTimeoutMs: CONNECT_MS, statementTimeoutMs: STATEMENT_MS };
    try {
      if (role === 'source') await requireSchema(options);
      // A copy must know all tables and columns.
      const ofCopy = { ...options, lockWaitMs: LOCK_WAIT_MS, isExact: true };
      const driver = await PostgresDriver.open(ofCopy, noMemory);
      return new CopiedDatabase({ role, driver, explain: explainPostgresError, isShared: true });
    } catch (error) {
      throw error instanceof CopyError
        ? error
        : new CopyError(role, `${target.name} cannot be used: ${explainPostgresError(error)}`);
    }
  }

  read<T>(start: () => Step<T>): Promise<T> {
    return this.#guard(this.#parts.driver.read(start));
  }

  /** Replaces parts of files that the rows of the table name by their bytes. @throws CopyError */
  loadParts(table: TableShape, rows: readonly Row[]): readonly Row[] {
    try {
      return loadParts(table, rows, this.#parts.files);
    } catch (error) {
      throw this.#fail(error);
    }
  }

  /** One transaction. Resolves when it is on disk. */
  write<T>(start: () => Step<T>): Promise<T> {
    return this.#guard(this.#parts.driver.write(start));
  }

  /** Rows of the tables that only nodes on Postgres use. */
  async countClusterRows(): Promise<ClusterRows> {
    return this.#parts.isShared ? this.read(countClusterRows) : { node: 0, shard: 0 };
  }

  close(): Promise<void> {
    return this.#guard(this.#parts.driver.close());
  }

  async #guard<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw this.#fail(causeOf(error));
    }
  }

  #fail(error: unknown): CopyError {
    const { explain, role } = this.#parts;
    return new CopyError(role, explain(error));
  }
}

/** A migration would make an empty database a database of Millrace. @throws CopyError */
async function requireSchema(options: Parameters<typeof Session.connect>[0]): Promise<void> {
  const session = await Session.connect(options);
  try {
    const { rows } = await session.execute(`select to_regclass('schema_version') as name`);
    if (rows[0]?.['name'] !== null) return;
  } finally {
    await session.end().catch(() => {});
  }
  const { name, schema } = options.target;
  throw new CopyError('source', `${name} has no tables of Millrace in the schema ${schema}`);
}

function* countClusterRows(): Step<ClusterRows> {
  const [row = {}] = yield {
    sql: 'select (select count(*) from node) as node, (select count(*) from shard) as shard',
    params: [],
  };
  return { node: number(row, 'node'), shard: number(row, 'shard') };
}

function causeOf(error: unknown): unknown {
  return error instanceof StoreUnavailableError && error.cause !== undefined ? error.cause : error;
}

function explainSqlite(error: unknown): string {
  const reason = error instanceof Error ? error.message : String(error);
  const code = nameStorageFailure(error);
  return code === undefined ? reason : `${reason}; ${explainFailure(code)}`;
}

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
const OWN_TABLES = `'copy_state', 'last_commit', 'schema_version'`;

/** The tables of this version, sorted by name. Databases of both kinds have the same ones. */
export async function readTables(): Promise<TableShape[]> {
  const driver = new SqliteDriver({ path: ':memory:' });
  try {
    const columns = await driver.read(readColumns);
    return [...Map.groupBy(columns, (row) => text(row, 'table'))].map(shapeTable);
  } finally {
    await driver.close();
  }
}

/** `key`: 1 for the first column of the primary key, 0 for a column that is not in it. */
function* readColumns(): Step<readonly Row[]> {
  return yield {
    sql: `select t.name as "table", c.name as "column", lower(c.type) as type, c.pk as "key"
      from sqlite_schema as t, pragma_table_info(t.name) as c
      where t.type = 'table' and t.name not like 'sqlite_%' and t.name not in (${OWN_TABLES})
      order by t.name, c.name`,
    params: [],
  };
}

function shapeTable([name, columns]: [string, readonly Row[]]): TableShape {
  const names = (chosen: readonly Row[]) => chosen.map((row) => text(row, 'column'));
  const key = columns
    .filter((row) => number(row, 'key') > 0)
    .toSorted((a, b) => number(a, 'key') - number(b, 'key'));
  return {
    name,
    columns: names(columns),
    key: names(key),
    long: names(columns.filter((row) => /^(text|blob)$/.test(text(row, 'type')))),
  };
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
