// When the write-ahead log is copied into the database: once it is long, or on request. A thread does it.
import type { SqliteConnection } from '../sqlite/sqlite-connection.ts';
import { StoreUnavailableError } from '../store.ts';
import type { Checkpoint, CheckpointMode } from './checkpoint-thread.ts';
import type { Checkpointer } from './checkpointer.ts';
import { isDiskFault, isStorageFailure } from './sqlite-errors.ts';

const PAGE_BYTES = 4_096;

/**
 * About the pages in the log at which it is copied: each copy costs four calls of fsync. Each statement counts
 * as a page.
 */
const LONG_PAGES = 4_000;

/** The same while the disk is full: it keeps the log at about 1 MB. */
const LONG_PAGES_FULL_DISK = 250;

/**
 * Copies beside commits go on until commits have added no more than this meanwhile: the rest is copied while none
 * is made.
 */
const FEW_PAGES = 256;

/** Most copies beside commits: a commit may add pages faster than the disk takes them. */
const MAX_BESIDE = 3;

/**
 * Before this version SQLite may lose pages if a commit begins the log again while another connection copies it
 * (sqlite.org/wal.html#walresetbug).
 */
const COPIES_BESIDE_COMMITS = [3, 51, 3];

export interface LogCopiesOptions {
  /** Copies in a thread. */
  checkpointer: Pick<Checkpointer, 'run' | 'close'>;
  /** Copies if there is no thread. */
  connection: Pick<SqliteConnection, 'copyLog'>;
  /** Puts the database file on disk, while commits go on. */
  syncFile: () => Promise<void>;
  /** Runs it while nothing is written or read. */
  runAlone: <T>(act: () => Promise<T>) => Promise<T>;
  /** Called with each failure of the disk, after which the next copy may succeed. */
  onFailure: (error: unknown) => void;
  /** Called if the file may lack pages although SQLite believes that it has them. */
  onLost: (error: unknown) => void;
}

export class LogCopies {
  readonly #options: LogCopiesOptions;
  readonly #isBesideSafe = isAtLeast(process.versions['sqlite'] ?? '0', COPIES_BESIDE_COMMITS);
  /** About the pages of the log that the file does not have. */
  #uncopied = 0;
  #longPages = LONG_PAGES;
  readonly #running = new Set<Promise<unknown>>();
  #isClosed = false;

  constructor(options: LogCopiesOptions) {
    this.#options = options;
  }

  /** Counts what a commit has added to the log, and has a long log copied. */
  noteCommit(statements: number, payloadBytes: number): void {
    this.#uncopied += statements + payloadBytes / PAGE_BYTES;
    if (this.#uncopied >= this.#longPages) this.#copyInBackground();
  }

  /** The disk is full: copies the log at once, so that the next commits need no new space, and keeps it short. */
  keepShort(): void {
    this.#longPages = LONG_PAGES_FULL_DISK;
    try {
      this.#options.connection.copyLog('passive');
    } catch (error) {
      // The file may not grow either.
      if (!isStorageFailure(error)) throw error;
      if (isDiskFault(error)) this.#options.onLost(error);
    }
  }

  /** The disk has space again. */
  keepLong(): void {
    this.#longPages = LONG_PAGES;
  }

  /**
   * Copies most of the log while commits go on, then the rest while none is made, so that the next commit begins
   * the log again. Returns false if another process reads, or if the disk cannot hold the log's content.
   */
  copy(mode: CheckpointMode): Promise<boolean> {
    if (this.#isClosed) return Promise.resolve(false);
    const copied = this.#copy(mode);
    const running: Promise<unknown> = copied.then(
      () => this.#running.delete(running),
      () => this.#running.delete(running),
    );
    this.#running.add(running);
    return copied;
  }

  async #copy(mode: CheckpointMode): Promise<boolean> {
    try {
      if (this.#isBesideSafe && !(await this.#copyBeside())) return false;
      const { copied, isBusy, pages } = await this.#options.runAlone(() => {
        this.#uncopied = 0;
        return this.#run(mode);
      });
      return !isBusy && copied === pages;
    } catch (error) {
      if (!isStorageFailure(error)) throw error;
      // The thread has copied pages, and the disk may have dropped them: SQLite will not copy them again.
      if (isDiskFault(error)) this.#options.onLost(error);
      else this.#options.onFailure(error);
      return false;
    }
  }

  /**
   * SQLite puts the file on disk only after a copy of the whole log, so without a call of its own here all commits
   * would wait for that. Returns false if the disk has failed.
   */
  async #copyBeside(): Promise<boolean> {
    for (let copies = 0; copies < MAX_BESIDE; copies++) {
      this.#uncopied = 0;
      await this.#run('passive');
      try {
        await this.#options.syncFile();
      } catch (error) {
        // The disk may have dropped pages: SQLite would not copy them again.
        this.#options.onLost(error);
        return false;
      }
      if (this.#uncopied <= FEW_PAGES) break;
    }
    return true;
  }

  /** Waits for the copies that run. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#running);
    await this.#options.checkpointer.close();
  }

  #copyInBackground(): void {
    if (this.#running.size > 0) return;
    this.copy('passive').catch((error: unknown) => {
      // After a failure the next commits try again.
      if (!(error instanceof StoreUnavailableError)) this.#options.onFailure(error);
    });
  }

  async #run(mode: CheckpointMode): Promise<Checkpoint> {
    try {
      return await this.#options.checkpointer.run(mode);
    } catch (error) {
      if (isStorageFailure(error)) throw error;
      // There is no thread: the event loop waits.
      return this.#options.connection.copyLog(mode);
    }
  }
}

function isAtLeast(version: string, least: readonly number[]): boolean {
  const parts = version.split('.').map(Number);
  for (const [index, part] of least.entries()) {
    const difference = (parts[index] ?? 0) - part;
    if (difference !== 0) return difference > 0;
  }
  return true;
}
