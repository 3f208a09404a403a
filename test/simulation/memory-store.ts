// A store in memory. The conformance suite of stores runs on it and on SQLite; it takes a fraction of the
// time of SQLite, so that a simulation can play thousands of worlds.
import type { CachedJobsOptions } from '../../src/store/live/cached-jobs.ts';
import { LiveJobs } from '../../src/store/live/live-jobs.ts';
import { commitOperation, readOperation, unwrap } from '../../src/store/sql/sql-store.ts';
import {
  type Reader,
  type Step,
  type Store,
  StoreUnavailableError,
  type Transaction,
} from '../../src/store/store.ts';
import { MemoryTables, type MemoryTablesOptions } from './memory-tables.ts';

interface Operation {
  /** Throws what the operation throws. */
  run(): void;
  settle: () => void;
  reject(error: unknown): void;
}

export interface MemoryStoreOptions extends CachedJobsOptions, MemoryTablesOptions {
  /** Whether the next commit fails. Default: none does. */
  failsCommit?: () => boolean;
  /** Called after each commit that was tried. */
  onSettled?: (state: { live: LiveJobs; tables: MemoryTables }) => void;
}

export class MemoryStore implements Store {
  readonly #tables: MemoryTables;
  readonly #options: MemoryStoreOptions;
  #live: LiveJobs;
  readonly #failsCommit: () => boolean;
  readonly #onSettled: () => void;
  readonly #queue: Operation[] = [];
  #isScheduled = false;
  #isWriting = false;
  #isClosed = false;

  constructor(options: MemoryStoreOptions = {}) {
    const { failsCommit = () => false, onSettled } = options;
    this.#options = options;
    this.#tables = new MemoryTables(options);
    this.#live = new LiveJobs(this.#tables, options);
    this.#failsCommit = failsCommit;
    this.#onSettled = () => onSettled?.({ live: this.#live, tables: this.#tables });
  }

  async write<T>(operation: (tx: Transaction) => T): Promise<T> {
    return unwrap(
      await this.#commitSteps(() => commitOperation(this.#tables, this.#live, operation)),
    );
  }

  #commitSteps<T>(start: () => Step<T>): Promise<T> {
    if (this.#isClosed) return Promise.reject(describeClosed());
    return new Promise((resolve, reject) => {
      const operation: Operation = {
        run: () => {
          const value = run(start());
          operation.settle = () => resolve(value);
        },
        settle: () => {},
        reject,
      };
      this.#queue.push(operation);
      this.#schedule();
    });
  }

  /** A caller inside an operation waits for the commit: a microtask runs after it, as in the SQLite store. */
  async read<T>(operation: (tx: Reader) => T): Promise<T> {
    await undefined;
    if (this.#isClosed) throw describeClosed();
    return run(readOperation(this.#tables, this.#live, operation));
  }

  /** The process ends and another one opens the store: what was only in memory is lost. */
  restart(): void {
    this.#live = new LiveJobs(this.#tables, this.#options);
  }

  async reclaim(): Promise<boolean> {
    return false;
  }

  async close(): Promise<void> {
    if (this.#isWriting) await undefined;
    this.#isClosed = true;
    this.#commit();
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#commit();
    });
  }

  /** Also runs operations that the operations themselves request. */
  #commit(): void {
    const operations: Operation[] = [];
    this.#isWriting = true;
    let error: Error | undefined;
    for (let next = this.#queue.shift(); next && !error; next = this.#queue.shift()) {
      operations.push(next);
      error = this.#try(next);
    }
    if (error) this.#undo();
    else error = this.#write();
    this.#onSettled();
    // One of them is at fault: each one runs again, alone.
    if (error && !(error instanceof StoreUnavailableError)) {
      for (const operation of operations) this.#commitAlone(operation);
      error = undefined;
    }
    this.#isWriting = false;
    if (this.#queue.length > 0) this.#schedule();
    for (const operation of operations) {
      if (error) operation.reject(error);
      else operation.settle();
    }
  }

  #commitAlone(operation: Operation): void {
    let error = this.#try(operation);
    if (error) this.#undo();
    else error = this.#write();
    if (error) operation.settle = () => operation.reject(error);
    this.#onSettled();
  }

  /** @returns why the tables have refused what it has changed */
  #try(operation: Operation): Error | undefined {
    try {
      operation.run();
      return undefined;
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  /** @returns why nothing was committed */
  #write(): Error | undefined {
    try {
      run(this.#live.write());
      if (this.#failsCommit()) throw new StoreUnavailableError('The commit failed');
      this.#tables.commit();
      this.#live.settle();
      return undefined;
    } catch (error) {
      this.#undo();
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  #undo(): void {
    this.#tables.undoTo(0);
    this.#live.forget();
  }
}

function run<T>(steps: Step<T>): T {
  const step = steps.next();
  if (!step.done) throw new Error(`a query that only SQL could answer: ${step.value.sql}`);
  return step.value;
}

function describeClosed(): Error {
  return new Error('The store is closed');
}
