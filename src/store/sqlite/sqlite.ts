// The store on an embedded SQLite file. All access is synchronous, so reads and batches of writes
// never overlap. The caller ensures that no second process opens the file.
import { statSync } from 'node:fs';
import { setImmediate } from '../../base/clock.ts';
import { leaveCopy } from '../copy/copy-state.ts';
import { Checkpointer, LogCopies } from '../disk/log-copies.ts';
import { locatePayloads, PayloadFolder } from '../disk/payload-files.ts';
import type { SpaceGate } from '../disk/space-gate.ts';
import {
  describeUnavailable,
  nameStorageFailure,
  nameSystemError,
  type StoreFailure,
  type StoreOperation,
} from '../disk/store-failures.ts';
import type { CachedJobsOptions } from '../live/cached-jobs.ts';
import { LiveJobs } from '../live/live-jobs.ts';
import { type MemoryState, type SqlDriver, SqlStore } from '../sql/sql-store.ts';
import { SqlTables } from '../sql/sql-tables.ts';
import {
  type Query,
  type Row,
  type Step,
  type Store,
  StoreUnavailableError,
  type WriteOptions,
} from '../store.ts';
import { GroupCommit } from './group-commit.ts';
import { type ConnectionOptions, SqliteConnection } from './sqlite-connection.ts';

const IN_MEMORY = ':memory:';

export interface SqliteOptions extends ConnectionOptions {
  /**
   * Called with each failure of the disk or the file. Default: only the failed callers learn of it.
   */
  onFailure?: (failure: StoreFailure) => void;
  /** Decides what may be written while the disk is full. Default: everything is attempted. */
  gate?: SpaceGate | undefined;
  /** Bounds of the jobs in memory. Default: those of CachedJobsOptions. */
  live?: CachedJobsOptions;
}

/**
 * Opens the store and migrates its schema. Throws SchemaTooNewError if a newer version of the
 * program wrote the file, UnfinishedCopyError, and SQLite's error if the file is not a database or cannot be opened.
 */
export function openSqliteStore(options: SqliteOptions): Store {
  return openSqlite(options).store;
}

/** Like openSqliteStore; also returns the driver that maintains the file. */
export function openSqlite(options: SqliteOptions): { store: Store; driver: SqliteDriver } {
  const { gate, onFailure = () => {}, path } = options;
  const files =
    path === IN_MEMORY
      ? undefined
      : new PayloadFolder({
          folder: locatePayloads(path),
          isUsable: () => gate?.isFull !== true,
          onFailure: (error) =>
            onFailure({ operation: 'payload', code: nameSystemError(error), error }),
        });
  const tables = new SqlTables(files);
  const live = new LiveJobs(tables, options.live);
  const driver = new SqliteDriver({ ...options, memory: live });
  try {
    driver.runAtStart(leaveCopy());
  } catch (error) {
    void driver.close();
    throw error;
  }
  return { store: new SqlStore({ driver, live, tables, files }), driver };
}

export class SqliteDriver implements SqlDriver {
  readonly #path: string;
  readonly #connection: SqliteConnection;
  readonly #commits: GroupCommit;
  readonly #pace = new ReadPace();
  readonly #onFailure: (failure: StoreFailure) => void;
  /** Undefined for a database in memory. */
  readonly #copies: LogCopies | undefined;
  #closing: Promise<void> | undefined;
  #closed = false;

  /** `memory` changes with the database. */
  constructor(options: SqliteOptions & { memory?: MemoryState }) {
    const { gate, memory, onFailure = () => {}, path } = options;
    this.#path = path;
    this.#onFailure = onFailure;
    this.#connection = new SqliteConnection(options);
    this.#commits = new GroupCommit({
      connection: this.#connection,
      // Whatever the error is, it has lost a whole transaction.
      onFailure: (error) => this.#reportAs('write', error, nameStorageFailure(error) ?? 'UNKNOWN'),
      onLost: (error) =>
        this.#reportAs('sync', error, nameStorageFailure(error) ?? nameSystemError(error)),
      onFull: () => this.saveSpace(),
      onCommit: (statements, payloadBytes) => this.#copies?.noteCommit(statements, payloadBytes),
      gate,
      memory,
    });
    const { syncDatabase } = this.#connection;
    if (syncDatabase) this.#copies = this.#createCopies(syncDatabase);
  }

  #createCopies(syncFile: () => Promise<void>): LogCopies {
    return new LogCopies({
      checkpointer: new Checkpointer(this.#path),
      connection: this.#connection,
      syncFile,
      runAlone: (act) => this.#commits.durability.runAlone(act),
      onFailure: (error) =>
        this.#reportAs('checkpoint', error, nameStorageFailure(error) ?? 'UNKNOWN'),
      onLost: (error) => this.#commits.durability.lose(error),
    });
  }

  /** Runs the steps at once, before any operation. @throws SQLite's error */
  runAtStart<T>(steps: Step<T>): T {
    return this.#connection.runSteps(steps);
  }

  write<T>(start: () => Step<T>, options?: WriteOptions): Promise<T> {
    return this.#closed ? Promise.reject(describeClosed()) : this.#commits.write(start, options);
  }

  async read<T>(start: () => Step<T>): Promise<T> {
    for (;;) {
      await this.#commits.durability.settled();
      if (!this.#pace.isUsedUp) break;
      await this.#pace.next();
    }
    return this.#guard('read', () => this.#connection.runSteps(start(), this.#readRows));
  }

  readonly #readRows = (query: Query): Row[] => {
    const rows = this.#connection.run(query);
    this.#pace.note(rows);
    return rows;
  };

  async reclaim(pages: number): Promise<boolean> {
    const connection = this.#connection;
    const hasFreed = await this.#runAlone(() => connection.freePages(pages));
    // The file itself shrinks only when the log is copied into it.
    if (hasFreed) await this.#copies?.copy('passive');
    if (connection.isLogTooLarge) await this.#copies?.copy('truncate');
    return this.#runAlone(() => connection.hasSparePages);
  }

  /** Rewrites and commits a page. @throws StoreUnavailableError */
  testWrite(): Promise<void> {
    return this.#commits.durability.commitAlone(() =>
      this.#guard('probe', () => this.#connection.testWrite()),
    );
  }

  /** Transactions committed so far. */
  get commits(): number {
    return this.#commits.commits;
  }

  /** @returns whether more free pages are left */
  eraseFreePages(pages: number): Promise<boolean> {
    return this.#runAlone(() => this.#connection.eraseFreePages(pages));
  }

  #runAlone<T>(act: () => T): Promise<T> {
    return this.#commits.durability.runAlone(async () => this.#guard('reclaim', act));
  }

  /** Returns false if something remains in the write-ahead log. */
  async truncateLog(): Promise<boolean> {
    if (this.#closed) throw describeClosed();
    return (await this.#copies?.copy('truncate')) ?? true;
  }

  /** Keeps the write-ahead log short while the disk is full. */
  saveSpace(): void {
    this.#copies?.keepShort();
  }

  useSpace(): void {
    this.#copies?.keepLong();
  }

  /** Bytes of the database file and of its write-ahead log. */
  measure(): { database: number; wal: number } {
    const sizeOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    return { database: sizeOf(this.#path), wal: sizeOf(`${this.#path}-wal`) };
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#closed = true;
    await this.#commits.flush();
    await this.#copies?.close();
    // Closing would copy pages whose content nobody knows.
    if (!this.#commits.durability.lost) this.#connection.close();
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

function describeClosed(): StoreUnavailableError {
  return new StoreUnavailableError('The store is closed');
}

/** About 10 ms of reading. The read that reaches the limit is the last one of its iteration. */
const ITERATION_BYTES = 4 * 1_048_576;

/**
 * Limits how much one iteration of the event loop reads from the store: otherwise, reads that were requested together would
 * run back to back and block everything else.
 */
export class ReadPace {
  #bytes = 0;
  #next: Promise<void> | undefined;

  /** This iteration has read enough. */
  get isUsedUp(): boolean {
    return this.#bytes >= ITERATION_BYTES;
  }

  /** After the wait, check `isOver` again; the read then runs without a further wait. */
  next(): Promise<void> {
    this.#next ??= this.#startIteration();
    return this.#next;
  }

  note(rows: readonly Row[]): void {
    for (const row of rows) {
      const value = row['bytes'];
      // Most rows have no such column.
      if (!(value instanceof Uint8Array)) return;
      this.#bytes += value.length;
    }
  }

  async #startIteration(): Promise<void> {
    // The global one: the simulation replaces it.
    await new Promise((resolve) => setImmediate(resolve));
    this.#bytes = 0;
    this.#next = undefined;
  }
}
