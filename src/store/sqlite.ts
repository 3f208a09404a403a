// The store on an embedded SQLite file. All access is synchronous, so reads and batches of writes
// never overlap. The caller ensures that no second process opens the file.
import { statSync } from 'node:fs';
import type { CheckpointMode } from './disk/checkpoint-thread.ts';
import { Checkpointer } from './disk/checkpointer.ts';
import type { SpaceGate } from './disk/space-gate.ts';
import { describeUnavailable, nameStorageFailure, nameSystemError } from './disk/sqlite-errors.ts';
import type { StoreFailure, StoreOperation } from './disk/store-health.ts';
import { GroupCommit, type MemoryState } from './group-commit.ts';
import { LiveJobs, type LiveJobsOptions } from './live/live-jobs.ts';
import { ReadTurns } from './read-turns.ts';
import type { SqlDriver } from './sql-driver.ts';
import { SqlStore } from './sql-store.ts';
import { SqlTables } from './sql-tables.ts';
import { type ConnectionOptions, SqliteConnection } from './sqlite-connection.ts';
import type { Query, Row, Step, Store, WriteOptions } from './store.ts';

export interface SqliteOptions extends ConnectionOptions {
  /**
   * Called with each failure of the disk or the file. Default: only the failed callers learn of it.
   */
  onFailure?: (failure: StoreFailure) => void;
  /** Decides what may be written while the disk is full. Default: everything is attempted. */
  gate?: SpaceGate | undefined;
  /** Bounds of the jobs in memory. Default: those of LiveJobsOptions. */
  live?: LiveJobsOptions;
}

/**
 * Opens the store and migrates its schema. Throws SchemaTooNewError if a newer version of the
 * program wrote the file, and SQLite's error if the file is not a database or cannot be opened.
 */
export function openSqliteStore(options: SqliteOptions): Store {
  return openSqlite(options).store;
}

/** Like openSqliteStore; also returns the driver that maintains the file. */
export function openSqlite(options: SqliteOptions): { store: Store; driver: SqliteDriver } {
  const tables = new SqlTables();
  const live = new LiveJobs(tables, options.live);
  const driver = new SqliteDriver({ ...options, memory: live });
  return { store: new SqlStore({ driver, live, tables }), driver };
}

const PAGE_BYTES = 4_096;

/**
 * About the pages in the write-ahead log at which a thread copies it into the file: each copy costs two more
 * fsyncs. Each statement counts as a page.
 */
const UNCOPIED_PAGES = 4_000;

export class SqliteDriver implements SqlDriver {
  readonly #path: string;
  readonly #connection: SqliteConnection;
  readonly #commits: GroupCommit;
  readonly #turns = new ReadTurns();
  readonly #onFailure: (failure: StoreFailure) => void;
  /** Undefined for a database in memory. */
  readonly #checkpointer: Checkpointer | undefined;
  /** About the pages of the log that the file does not have. */
  #uncopied = 0;
  #copying: Promise<void> | undefined;
  #closed = false;

  /** `memory` changes with the database. */
  constructor(options: SqliteOptions & { memory?: MemoryState }) {
    const { gate, memory, onFailure = () => {}, path } = options;
    this.#path = path;
    this.#onFailure = onFailure;
    this.#connection = new SqliteConnection(options);
    if (this.#connection.sync) this.#checkpointer = new Checkpointer(path);
    this.#commits = new GroupCommit({
      connection: this.#connection,
      // Whatever the error is, it has lost a whole transaction.
      onFailure: (error) => this.#reportAs('write', error, nameStorageFailure(error) ?? 'UNKNOWN'),
      onLost: (error) => this.#reportAs('sync', error, nameSystemError(error)),
      onCommit: (statements, payloadBytes) => this.#noteCommit(statements, payloadBytes),
      gate,
      memory,
      sync: this.#connection.sync,
    });
  }

  write<T>(start: () => Step<T>, options?: WriteOptions): Promise<T> {
    return this.#closed ? Promise.reject(describeClosed()) : this.#commits.write(start, options);
  }

  async read<T>(start: () => Step<T>): Promise<T> {
    for (;;) {
      await this.#commits.settled();
      if (!this.#turns.isOver) break;
      await this.#turns.next();
    }
    return this.#guard('read', () => this.#connection.runSteps(start(), this.#readRows));
  }

  readonly #readRows = (query: Query): Row[] => {
    const rows = this.#connection.run(query);
    this.#turns.note(rows);
    return rows;
  };

  async reclaim(pages: number): Promise<boolean> {
    await this.#commits.settled();
    const connection = this.#connection;
    const hasFreed = this.#guard('reclaim', () => connection.freePages(pages));
    // The file itself shrinks only when the log is copied into it.
    if (hasFreed) await this.#copyLog('passive');
    if (connection.isLogTooLarge) await this.#copyLog('truncate');
    return this.#guard('reclaim', () => connection.hasSparePages);
  }

  /** Rewrites and commits a page. @throws StoreUnavailableError */
  async testWrite(): Promise<void> {
    await this.#commits.settled();
    this.#guard('probe', () => this.#connection.testWrite());
    await this.#commits.sync();
  }

  /** Transactions committed so far. */
  get commits(): number {
    return this.#commits.commits;
  }

  /** @returns whether more free pages are left */
  async eraseFreePages(pages: number): Promise<boolean> {
    await this.#commits.settled();
    return this.#guard('reclaim', () => this.#connection.eraseFreePages(pages));
  }

  /** Returns false if something remains in the write-ahead log. */
  truncateLog(): Promise<boolean> {
    return this.#copyLog('truncate');
  }

  /**
   * Copies the write-ahead log into the file while nothing is written. Returns false if another process reads, or
   * if the disk cannot hold the log's content.
   */
  async #copyLog(mode: CheckpointMode): Promise<boolean> {
    const checkpointer = this.#checkpointer;
    if (this.#closed) throw describeClosed();
    if (!checkpointer) return true;
    try {
      const { copied, isBusy, pages } = await this.#commits.runAlone(() => checkpointer.run(mode));
      return !isBusy && copied === pages;
    } catch (error) {
      if (!this.#report('checkpoint', error)) throw error;
      return false;
    }
  }

  /** Counts what a commit adds to the log, and has a long log copied. */
  #noteCommit(statements: number, payloadBytes: number): void {
    this.#uncopied += statements + payloadBytes / PAGE_BYTES;
    if (this.#uncopied < UNCOPIED_PAGES || this.#copying || !this.#checkpointer) return;
    this.#uncopied = 0;
    this.#copying = this.#copyLongLog(this.#checkpointer).finally(() => {
      this.#copying = undefined;
    });
  }

  /** Most of it while commits go on; then the rest, so that the next commit begins the log again. */
  async #copyLongLog(checkpointer: Checkpointer): Promise<void> {
    try {
      await checkpointer.run('passive');
      await this.#commits.runAlone(() => checkpointer.run('passive'));
    } catch (error) {
      // The next commits try again; if the thread cannot, the connection does it itself.
      if (!this.#report('checkpoint', error)) this.#reportAs('checkpoint', error, 'UNKNOWN');
    }
  }

  /** Keeps the write-ahead log short while the disk is full. */
  saveSpace(): void {
    this.#connection.saveSpace();
  }

  useSpace(): void {
    this.#connection.useSpace();
  }

  /** Bytes of the database file and of its write-ahead log. */
  measure(): { database: number; wal: number } {
    const sizeOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    return { database: sizeOf(this.#path), wal: sizeOf(`${this.#path}-wal`) };
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#commits.flush();
    await this.#copying;
    await this.#checkpointer?.close();
    this.#connection.close();
  }

  #guard<T>(operation: StoreOperation, act: () => T): T {
    if (this.#closed) throw describeClosed();
    try {
      return act();
    } catch (error) {
      throw this.#report(operation, error) ? describeUnavailable(error) : error;
    }
  }

  /** @returns whether it was a failure of the disk or the file */
  #report(operation: StoreOperation, error: unknown): boolean {
    const code = nameStorageFailure(error);
    if (code !== undefined) this.#reportAs(operation, error, code);
    return code !== undefined;
  }

  #reportAs(operation: StoreOperation, error: unknown, code: string): void {
    this.#onFailure({ operation, code, error });
  }
}

function describeClosed(): Error {
  return new Error('The store is closed');
}
