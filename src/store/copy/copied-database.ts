// The source or the target of a copy: its driver, and its errors explained to the operator.
import { closeSync, openSync } from 'node:fs';
import { locatePayloads, type PartFiles, PayloadFolder } from '../disk/payload-files.ts';
import { explainFailure, nameStorageFailure } from '../disk/sqlite-errors.ts';
import type { PostgresTarget } from '../postgres/connection-url.ts';
import { PostgresDriver } from '../postgres/postgres.ts';
import { explainPostgresError } from '../postgres/postgres-errors.ts';
import { Session } from '../postgres/session.ts';
import { loadParts } from '../sql/payload-parts.ts';
import { number } from '../sql/rows.ts';
import type { MemoryState, SqlDriver } from '../sql/sql-store.ts';
import { SqliteDriver } from '../sqlite/sqlite.ts';
import { type Row, type Step, StoreUnavailableError } from '../store.ts';
import {
  type Catalog,
  readPostgresCatalog,
  readSqliteCatalog,
  shapeTables,
  type TableShape,
} from './copied-tables.ts';

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
  catalog: Catalog;
  explain: (error: unknown) => string;
  files?: PartFiles;
}

interface ClusterRows {
  node: number;
  shard: number;
}

export class CopiedDatabase {
  readonly role: CopyRole;
  readonly #driver: SqlDriver;
  readonly #catalog: Catalog;
  readonly #explain: (error: unknown) => string;
  readonly #files: PartFiles | undefined;

  private constructor({ catalog, driver, explain, files, role }: Parts) {
    this.role = role;
    this.#files = files;
    this.#driver = driver;
    this.#catalog = catalog;
    this.#explain = explain;
  }

  /** Opens the file, and migrates it. The caller has locked its folder. @throws CopyError */
  static openSqlite(role: CopyRole, path: string): CopiedDatabase {
    try {
      closeSync(openSync(path, 'a', OWNER_ONLY));
      const driver = new SqliteDriver({ path, cacheBytes: CACHE_BYTES });
      return new CopiedDatabase({
        role,
        driver,
        catalog: readSqliteCatalog,
        explain: explainSqlite,
        files: new PayloadFolder({ folder: locatePayloads(path) }),
      });
    } catch (error) {
      throw new CopyError(role, `${path} cannot be used: ${explainSqlite(error)}`);
    }
  }

  get #isPostgres(): boolean {
    return this.#catalog === readPostgresCatalog;
  }

  /** Connects, takes the lock of the platform, and migrates. @throws CopyError */
  static async openPostgres(role: CopyRole, target: PostgresTarget): Promise<CopiedDatabase> {
    const options = { target, connectTimeoutMs: CONNECT_MS, statementTimeoutMs: STATEMENT_MS };
    try {
      if (role === 'source') await requireSchema(options);
      // A copy must know all tables and columns.
      const ofCopy = { ...options, lockWaitMs: LOCK_WAIT_MS, isExact: true };
      const driver = await PostgresDriver.open(ofCopy, noMemory);
      return new CopiedDatabase({
        ...{ role, driver, catalog: readPostgresCatalog },
        explain: explainPostgresError,
      });
    } catch (error) {
      throw error instanceof CopyError
        ? error
        : new CopyError(role, `${target.name} cannot be used: ${explainPostgresError(error)}`);
    }
  }

  async readTables(): Promise<TableShape[]> {
    return shapeTables(await this.read(this.#catalog));
  }

  read<T>(start: () => Step<T>): Promise<T> {
    return this.#guard(this.#driver.read(start));
  }

  /** Replaces parts of files that the rows of the table name by their bytes. @throws CopyError */
  loadParts(table: TableShape, rows: readonly Row[]): readonly Row[] {
    try {
      return loadParts(table, rows, this.#files);
    } catch (error) {
      throw new CopyError(this.role, this.#explain(error));
    }
  }

  /** One transaction. Resolves when it is on disk. */
  write<T>(start: () => Step<T>): Promise<T> {
    return this.#guard(this.#driver.write(start));
  }

  /** Rows of the tables that only nodes on Postgres use. */
  async countClusterRows(): Promise<ClusterRows> {
    return this.#isPostgres ? this.read(countClusterRows) : { node: 0, shard: 0 };
  }

  close(): Promise<void> {
    return this.#guard(this.#driver.close());
  }

  async #guard<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw new CopyError(this.role, this.#explain(causeOf(error)));
    }
  }
}

/** The tables of this version, which all kinds of databases have. */
export async function readKnownTables(): Promise<TableShape[]> {
  const driver = new SqliteDriver({ path: ':memory:' });
  try {
    return shapeTables(await driver.read(readSqliteCatalog));
  } finally {
    await driver.close();
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
