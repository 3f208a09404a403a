// One SQLite database on node:sqlite: how it is opened, how a statement runs, how its space is given back.
import { statSync } from 'node:fs';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { isStorageFailure } from './disk/sqlite-errors.ts';
import { MIGRATIONS, migrate } from './migrations.ts';
import type { Query, Row, SqlValue, Step } from './store.ts';

export interface ConnectionOptions {
  /** The file, made if it is missing; `:memory:` keeps everything in memory and is gone on close. */
  path: string;
  /** Page cache, bytes. Default 64 MB. */
  cacheBytes?: number;
  /** The write-ahead log is cut back to this by `reclaim`, bytes. Default 64 MB. */
  walLimitBytes?: number;
  /** The file grows to this many pages of 4 KB; then writes are refused. Default: no limit. */
  maxPages?: number;
  /** How long everything stands still while another process has the file locked. Default 2,000. */
  busyTimeoutMs?: number;
  /** Called when the write-ahead log cannot be copied into the file. Default: nobody is told. */
  onCheckpointFailure?: (error: unknown) => void;
}

const MB = 1_048_576;

/** Pages in the write-ahead log that set off a checkpoint: every one costs two more fsyncs. */
const CHECKPOINT_PAGES = 4_000;

/** The same while the disk is full: the log is 1 MB long then, and not 16. */
const CHECKPOINT_PAGES_FULL_DISK = 250;

/** Far above what the store says; a bound for update statements, which are made as needed. */
const STATEMENTS_KEPT = 512;

/** A parameter from here on is not left in a statement that waits for its next use. */
const LARGE_BYTES = 65_536;

/** A log of no more than this has nothing in it. */
const LOG_HEADER_BYTES = 32;

/** The database file is empty or gone, and its write-ahead log is not: opening it would lose data. */
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

/** Free pages up to this share of the file are kept. */
const SHARE_KEPT_FREE = 0.1;

export class SqliteConnection {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, Statement>();
  readonly #walPath: string;
  readonly #walLimitBytes: number;
  readonly #busyTimeoutMs: number;
  readonly #onFailure: (error: unknown) => void;

  constructor(options: ConnectionOptions) {
    const { path, cacheBytes = 64 * MB, walLimitBytes = 64 * MB } = options;
    const { maxPages, busyTimeoutMs = 2_000 } = options;
    this.#busyTimeoutMs = busyTimeoutMs;
    this.#onFailure = options.onCheckpointFailure ?? (() => {});
    this.#walPath = `${path}-wal`;
    refuseLoneLog(path);
    this.#walLimitBytes = walLimitBytes;
    this.#database = new DatabaseSync(path, { timeout: busyTimeoutMs });
    try {
      // Before anything is written: an existing file keeps what it was made with.
      this.#database.exec('pragma auto_vacuum = incremental');
      this.#database.exec(`
        pragma journal_mode = wal;
        pragma synchronous = full;
        pragma temp_store = memory;
        pragma secure_delete = fast;
        pragma cache_size = ${-Math.ceil(cacheBytes / 1024)};
        pragma journal_size_limit = ${walLimitBytes};
        pragma wal_autocheckpoint = ${CHECKPOINT_PAGES};
      `);
      migrate(this.#database, MIGRATIONS);
      if (maxPages !== undefined) this.#database.exec(`pragma max_page_count = ${maxPages}`);
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  get inTransaction(): boolean {
    return this.#database.isTransaction;
  }

  run(query: Query): Row[] {
    const { prepared, toRow } = this.#prepare(query.sql);
    const found = prepared.all(...query.params);
    // Whatever is bound next replaces the copy that SQLite made of it; that may take long to come. This
    // runs nothing: it takes back what is bound.
    if (query.params.some(isLarge)) prepared.iterate();
    return found.length === 0 ? [] : found.map(toRow);
  }

  /** Runs the steps one right after the other; an error is thrown at the step that caused it. */
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

  /** A statement without parameters or rows that matter. */
  execute(sql: string): void {
    this.#prepare(sql).prepared.run();
  }

  /** Commits a page that says what it said before. Throws if nothing can be written now. */
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

  /** The disk is full: the write-ahead log is kept as short as it can be. */
  saveSpace(): void {
    this.#database.exec(`pragma wal_autocheckpoint = ${CHECKPOINT_PAGES_FULL_DISK}`);
    this.#checkpoint('passive');
  }

  /** The disk has space again. */
  useSpace(): void {
    this.#database.exec(`pragma wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  }

  /** False if another connection reads, or the disk is too full for what is in the log. */
  #checkpoint(mode: 'passive' | 'truncate'): boolean {
    try {
      // A reader in another process would hold everything up for the time that a lock may take.
      this.#database.exec('pragma busy_timeout = 0');
      const [row] = this.run({ sql: `pragma wal_checkpoint(${mode})`, params: [] });
      return row?.['busy'] === 0 && row['log'] === row['checkpointed'];
    } catch (error) {
      if (isStorageFailure(error)) {
        this.#onFailure(error);
        return false;
      }
      throw error;
    } finally {
      this.#database.exec(`pragma busy_timeout = ${this.#busyTimeoutMs}`);
    }
  }

  /**
   * Free pages have what was deleted in them until they are used again: this cuts them off the file,
   * once the log is truncated. @returns whether there are more
   */
  eraseFreePages(pages: number): boolean {
    const free = this.#count('freelist_count');
    if (free > 0) this.#database.exec(`pragma incremental_vacuum(${Math.min(free, pages)})`);
    return free > pages;
  }

  /** False if there is something left in the write-ahead log, because another connection reads it. */
  truncateLog(): boolean {
    return this.#checkpoint('truncate');
  }

  /** @returns whether there is more to give back */
  reclaim(pages: number): boolean {
    const freed = Math.min(this.#countSparePages(), Math.trunc(pages));
    if (freed > 0) {
      this.#database.exec(`pragma incremental_vacuum(${freed})`);
      // The file itself shrinks only when the log is copied into it.
      this.#checkpoint('passive');
    }
    const wal = statSync(this.#walPath, { throwIfNoEntry: false });
    if (wal && wal.size > this.#walLimitBytes) {
      this.#checkpoint('truncate');
    }
    return this.#countSparePages() > 0;
  }

  /** Free pages beyond those that are kept, because the next jobs will want them. */
  #countSparePages(): number {
    return Math.floor(this.#count('freelist_count') - SHARE_KEPT_FREE * this.#count('page_count'));
  }

  #count(pragma: 'freelist_count' | 'page_count'): number {
    return Number(this.run({ sql: `pragma ${pragma}`, params: [] })[0]?.[pragma]);
  }

  /** What is in the write-ahead log is copied into the file, as far as the disk lets it. */
  close(): void {
    this.#statements.clear();
    this.#database.close();
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

/** SQLite itself would delete the log, and with it everything that is not in the file. */
function refuseLoneLog(path: string): void {
  const sizeOf = (file: string) => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  const logBytes = sizeOf(`${path}-wal`);
  if (sizeOf(path) === 0 && logBytes > LOG_HEADER_BYTES) throw new LoneLogError(path, logBytes);
}

function isLarge(param: SqlValue): boolean {
  return typeof param === 'object' && param !== null && param.byteLength >= LARGE_BYTES;
}

/** Rows over the arrays that node:sqlite gives: a job costs half as much as with its own objects. */
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
