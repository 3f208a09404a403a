// Copies the write-ahead log into the database file, in a thread.
import { once } from 'node:events';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { SqliteConnection } from '../sqlite/sqlite-connection.ts';
import { StoreUnavailableError } from '../store.ts';
import type { Checkpoint, CheckpointAnswer, CheckpointMode } from './checkpoint-thread.ts';
import { isDiskFault, isStorageFailure } from './store-failures.ts';

const PAGE_BYTES = 4_096;

/**
 * About the pages in the log at which it is copied: each copy costs four calls of fsync. Each statement counts
 * as a page.
 */
const LONG_PAGES = 4_000;

/** The same while the disk is full: it keeps the log at about 1 MB. */
const LONG_PAGES_FULL_DISK = 250;

/** Copies beside commits go on until commits add fewer pages than this meanwhile. The rest is copied while none is made. */
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

const entry = new URL(`./checkpoint-thread${extname(import.meta.url)}`, import.meta.url);

/** The thread only calls SQLite. */
const LIMITS = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 4, stackSizeMb: 1 };

export class Checkpointer {
  readonly #path: string;
  /** Started when it is first needed. */
  #thread: Worker | undefined;
  #asked: PromiseWithResolvers<Checkpoint> | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** One after the other. @throws SQLite's error, with its `errcode`, or the error that ended the thread */
  run(mode: CheckpointMode): Promise<Checkpoint> {
    const result = this.#last.then(() => this.#ask(mode));
    this.#last = result.catch(() => {});
    return result;
  }

  /** Waits for the checkpoint that runs. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#last;
    const thread = this.#thread;
    if (!thread) return;
    thread.ref();
    const exited = once(thread, 'exit');
    thread.postMessage('close');
    // It may also end by an error.
    await exited.catch(() => {});
  }

  #ask(mode: CheckpointMode): Promise<Checkpoint> {
    if (this.#isClosed) return Promise.reject(new Error('The checkpoint thread is closed'));
    const asked = Promise.withResolvers<Checkpoint>();
    this.#asked = asked;
    const thread = this.#thread ?? this.#start();
    this.#thread = thread;
    // Operations may wait for the answer, but a thread that waits for the next request keeps no process alive.
    thread.ref();
    thread.postMessage(mode);
    return asked.promise.finally(() => thread.unref());
  }

  #start(): Worker {
    // Without the program's --import modules and NODE_OPTIONS: they take memory, and may keep the thread alive.
    const own = { execArgv: [], env: {} };
    const thread = new Worker(entry, { ...own, workerData: this.#path, resourceLimits: LIMITS });
    thread.on('message', (answer: CheckpointAnswer) => {
      if ('message' in answer) this.#fail(answer);
      else this.#asked?.resolve(answer);
    });
    thread.on('error', (error: unknown) => this.#asked?.reject(error));
    thread.on('exit', () => {
      this.#thread = undefined;
      this.#fail({ message: 'The checkpoint thread ended' });
    });
    return thread;
  }

  #fail({ errcode, message }: { message: string; errcode?: number | undefined }): void {
    this.#asked?.reject(Object.assign(new Error(message), errcode !== undefined && { errcode }));
  }
}
