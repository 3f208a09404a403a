// One SQLite database over node:sqlite: opens it, runs statements, reclaims space.
import { closeSync, openSync, statSync } from 'node:fs';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import type { Checkpoint, CheckpointMode } from '../disk/checkpoint-thread.ts';
import { FileSync, syncInPool } from '../disk/durability.ts';
import type { MigrationListener } from '../schema-migration.ts';
import type { Query, Row, SqlValue, Step } from '../store.ts';
import { MIGRATIONS, migrate } from './schema.ts';

export interface ConnectionOptions {
  /** The file, created if it is missing; `:memory:` keeps everything in memory until close. */
  path: string;
  /** Page cache, bytes. Default 64 MB. */
  cacheBytes?: number;
  /** Size above which the write-ahead log is truncated, bytes. Default 64 MB. */
  walLimitBytes?: number;
  /** Largest size of the file in pages of 4 KB; further writes are rejected. Default: no limit. */
  maxPages?: number;
  /** How long a call blocks while another process has locked the file, ms. Default 2,000. */
  busyTimeoutMs?: number;
  /**
   * Puts a file on disk, of which about so many bytes are new; rejects with the system's error. Default: fdatasync,
   * in Node's thread pool if the disk is slow or the bytes are many.
   */
  syncFile?: (descriptor: number, bytes: number) => Promise<void>;
  /** Called if the schema of an existing database was migrated. Default: ignored. */
  onMigrated?: MigrationListener;
}

const MB = 1_048_576;

/**
 * Far above the number of fixed statements; bounds the update statements, which are created as
 * needed.
 */
const STATEMENTS_KEPT = 512;

/** A parameter of this size or larger does not stay bound to a cached statement. */
const LARGE_BYTES = 65_536;

/** A log of this size or less has no content. */
const LOG_HEADER_BYTES = 32;

/**
 * The database file is empty or missing but its write-ahead log is not: opening it would lose data.
 */
export class LoneLogError extends Error {
  override readonly name = 'LoneLogError';

  constructor(path: string, logBytes: number) {
    super(
      `${path} is empty or missing, but its write-ahead log ${path}-wal holds ${logBytes} bytes, ` +
        'which would be lost. Put the database file back, or restore a backup; if the data is not ' +
        'needed, move the log away.',
    );
  }
}

interface Statement {
  readonly prepared: StatementSync;
  toRow(values: Readonly<Record<number, unknown>>): Row;
}

/** Share of free pages that the file keeps. */
const SHARE_KEPT_FREE = 0.1;

export class SqliteConnection {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, Statement>();
  readonly #walPath: string;
  readonly #walLimitBytes: number;
  readonly #busyTimeoutMs: number;
  /** Descriptor of the write-ahead log. A database in memory has none. */
  readonly #log: number | undefined;
  /** Puts all commits on disk, as `syncFile` does. Undefined for a database in memory. */
  readonly sync: ((bytes: number) => Promise<void>) | undefined;
  /**
   * Does the same through a descriptor of its own: the system reports a failure of the disk once to each descriptor, so
   * `sync` reports it as well.
   */
  readonly syncEarly: ((bytes: number) => Promise<void>) | undefined;
  readonly #earlyLog: number | undefined;
  /** Descriptor of the database file. It stays open as long as SQLite's own: closing it ends SQLite's locks of the file. */
  readonly #file: number | undefined;
  /** Puts the database file on disk, in the thread pool. Undefined for a database in memory. */
  readonly syncDatabase: (() => Promise<void>) | undefined;

  constructor(options: ConnectionOptions) {
    const { path, cacheBytes = 64 * MB, walLimitBytes = 64 * MB } = options;
    const { maxPages, busyTimeoutMs = 2_000 } = options;
    this.#busyTimeoutMs = busyTimeoutMs;
    this.#walPath = `${path}-wal`;
    refuseLoneLog(path);
    this.#walLimitBytes = walLimitBytes;
    this.#database = new DatabaseSync(path, { timeout: busyTimeoutMs });
    try {
      // Must come before any write: it has no effect on an existing file.
      this.#database.exec('pragma auto_vacuum = incremental');
      this.#database.exec(`
        pragma journal_mode = wal;
        pragma synchronous = full;
        pragma temp_store = memory;
        pragma secure_delete = fast;
        pragma cache_size = ${-Math.ceil(cacheBytes / 1024)};
        pragma journal_size_limit = ${walLimitBytes};
        pragma wal_autocheckpoint = 0;
      `);
      const migration = migrate(this.#database, MIGRATIONS);
      if (migration) options.onMigrated?.(migration);
      if (maxPages !== undefined) this.#database.exec(`pragma max_page_count = ${maxPages}`);
      this.#log = openIfExists(this.#walPath);
      this.#earlyLog = openIfExists(this.#walPath);
      this.#file = this.#log === undefined ? undefined : openIfExists(path);
      // From here on `sync` puts commits on disk, not SQLite. SQLite still puts a new header of the log on disk
      // before the frames behind it, and the log before a checkpoint.
      if (this.#log !== undefined) this.#database.exec('pragma synchronous = normal');
    } catch (error) {
      this.#database.close();
      throw error;
    }
    const log = this.#log;
    const early = this.#earlyLog;
    const file = this.#file;
    const { syncFile = new FileSync().run } = options;
    this.sync = log === undefined ? undefined : (bytes) => syncFile(log, bytes);
    this.syncEarly = early === undefined ? undefined : (bytes) => syncFile(early, bytes);
    this.syncDatabase = file === undefined ? undefined : () => syncInPool(file);
  }

  get inTransaction(): boolean {
    return this.#database.isTransaction;
  }

  run(query: Query): Row[] {
    const { prepared, toRow } = this.#prepare(query.sql);
    const found = prepared.all(...query.params);
    // SQLite keeps its copy of a large parameter until the next binding, which may come late.
    // This runs nothing; it only releases the copy.
    if (query.params.some(isLarge)) prepared.iterate();
    return found.length === 0 ? [] : found.map(toRow);
  }

  /** Runs the steps without a pause; an error is thrown into the step that caused it. */
  runSteps<T>(steps: Step<T>, run: (query: Query) => Row[] = (query) => this.run(query)): T {
    let step = steps.next();
    while (!step.done) {
      let rows: Row[];
      try {
        rows = run(step.value);
      } catch (error) {
        step = steps.throw(error);
        continue;
      }
      step = steps.next(rows);
    }
    return step.value;
  }

  /** Runs a statement without parameters, ignoring rows. */
  execute(sql: string): void {
    this.#prepare(sql).prepared.run();
  }

  /** Rewrites a page with the same content and commits. Throws if nothing can be written now. */
  testWrite(): void {
    try {
      this.execute('begin immediate');
      this.#database.exec(`pragma user_version = ${MIGRATIONS.length}`);
      this.execute('commit');
    } catch (error) {
      if (this.inTransaction) this.execute('rollback');
      throw error;
    }
  }

  /** Copies the write-ahead log into the file. @throws SQLite's error */
  copyLog(mode: CheckpointMode): Checkpoint {
    try {
      // Otherwise a reader in another process would block this one for the lock's timeout.
      this.#database.exec('pragma busy_timeout = 0');
      const [row] = this.run({ sql: `pragma wal_checkpoint(${mode})`, params: [] });
      const { busy, checkpointed, log } = row ?? {};
      return { isBusy: busy !== 0, pages: Number(log), copied: Number(checkpointed) };
    } finally {
      this.#database.exec(`pragma busy_timeout = ${this.#busyTimeoutMs}`);
    }
  }

  /**
   * Cuts free pages, which still contain deleted data, off the file; takes effect once the log is
   * truncated. @returns whether more are left
   */
  eraseFreePages(pages: number): boolean {
    const free = this.#count('freelist_count');
    if (free > 0) this.#database.exec(`pragma incremental_vacuum(${Math.min(free, pages)})`);
    return free > pages;
  }

  /** Cuts free pages off the file once the log is copied into it. @returns whether there were any */
  freePages(pages: number): boolean {
    const freed = Math.min(this.#countSparePages(), Math.trunc(pages));
    if (freed > 0) this.#database.exec(`pragma incremental_vacuum(${freed})`);
    return freed > 0;
  }

  get hasSparePages(): boolean {
    return this.#countSparePages() > 0;
  }

  get isLogTooLarge(): boolean {
    const wal = statSync(this.#walPath, { throwIfNoEntry: false });
    return wal !== undefined && wal.size > this.#walLimitBytes;
  }

  /** Free pages beyond those kept for the next jobs. */
  #countSparePages(): number {
    return Math.floor(this.#count('freelist_count') - SHARE_KEPT_FREE * this.#count('page_count'));
  }

  #count(pragma: 'freelist_count' | 'page_count'): number {
    return Number(this.run({ sql: `pragma ${pragma}`, params: [] })[0]?.[pragma]);
  }

  /** Copies the write-ahead log into the file, as far as the disk permits. */
  close(): void {
    this.#statements.clear();
    this.#database.close();
    for (const descriptor of [this.#log, this.#earlyLog, this.#file]) {
      if (descriptor !== undefined) closeSync(descriptor);
    }
  }

  #prepare(sql: string): Statement {
    const known = this.#statements.get(sql);
    if (known) return known;
    const prepared = this.#database.prepare(sql);
    prepared.setReturnArrays(true);
    const statement = { prepared, toRow: shapeRows(prepared) };
    const [oldest] = this.#statements.keys();
    if (oldest !== undefined && this.#statements.size >= STATEMENTS_KEPT) {
      this.#statements.delete(oldest);
    }
    this.#statements.set(sql, statement);
    return statement;
  }
}

/** SQLite itself would delete the log, and with it all data that is not in the file. */
function refuseLoneLog(path: string): void {
  const sizeOf = (file: string) => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  const logBytes = sizeOf(`${path}-wal`);
  if (sizeOf(path) === 0 && logBytes > LOG_HEADER_BYTES) throw new LoneLogError(path, logBytes);
}

function openIfExists(path: string): number | undefined {
  const exists = statSync(path, { throwIfNoEntry: false }) !== undefined;
  return exists ? openSync(path, 'r+') : undefined;
}

function isLarge(param: SqlValue): boolean {
  return typeof param === 'object' && param !== null && param.byteLength >= LARGE_BYTES;
}

/** Converts node:sqlite's array rows: a job costs half as much as with its object rows. */
function shapeRows(prepared: StatementSync): Statement['toRow'] {
  const names = prepared.columns().map((column) => column.name);
  class ArrayRow {
    readonly [column: string]: unknown;
    readonly #values: Readonly<Record<number, unknown>>;

    constructor(values: Readonly<Record<number, unknown>>) {
      this.#values = values;
    }

    static {
      for (const [index, name] of names.entries()) {
        Object.defineProperty(ArrayRow.prototype, name, {
          get(this: ArrayRow) {
            return this.#values[index];
          },
        });
      }
    }
  }
  return (values) => new ArrayRow(values);
}
