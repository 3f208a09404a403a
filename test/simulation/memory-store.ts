// A store in memory. The conformance suite of stores runs on it and on SQLite; it takes a fraction of the
// time of SQLite, so that a simulation can play thousands of worlds.
import type { KeptJobsOptions } from '../../src/store/live/kept-jobs.ts';
import { LiveJobs } from '../../src/store/live/live-jobs.ts';
import { LiveReader } from '../../src/store/live/live-reader.ts';
import { LiveTransaction } from '../../src/store/live/live-transaction.ts';
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

export interface MemoryStoreOptions extends KeptJobsOptions, MemoryTablesOptions {
  /** Whether the next commit fails. Default: none does. */
  failsCommit?: () => boolean;
  /** Called after each commit that was tried. */
  onSettled?: (state: { live: LiveJobs; tables: MemoryTables }) => void;
}

export class MemoryStore implements Store {
  readonly #tables: MemoryTables;
  readonly #options: MemoryStoreOptions;
  #live: LiveJobs;
  #reader: Reader;
  #transaction: Transaction;
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
    this.#reader = new LiveReader(this.#tables, this.#live);
    this.#transaction = new LiveTransaction(this.#tables, this.#live);
    this.#failsCommit = failsCommit;
    this.#onSettled = () => onSettled?.({ live: this.#live, tables: this.#tables });
  }

  write<T>(start: (tx: Transaction) => Step<T>): Promise<T> {
    if (this.#isClosed) return Promise.reject(describeClosed());
    return new Promise((resolve, reject) => {
      const operation: Operation = {
        run: () => {
          const value = run(start(this.#transaction));
          operation.settle = () => resolve(value);
        },
        settle: () => {},
        reject,
      };
      this.#queue.push(operation);
      this.#schedule();
    });
  }

  /** A caller inside an operation waits for the commit: a microtask runs after it. */
  async read<T>(operation: (tx: Reader) => Step<T>): Promise<T> {
    if (this.#isWriting) await undefined;
    if (this.#isClosed) throw describeClosed();
    return run(operation(this.#reader));
  }

  /** The process ends and another one opens the store: what was only in memory is lost. */
  restart(): void {
    this.#live = new LiveJobs(this.#tables, this.#options);
    this.#reader = new LiveReader(this.#tables, this.#live);
    this.#transaction = new LiveTransaction(this.#tables, this.#live);
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
    let isSpoiled = false;
    for (let next = this.#queue.shift(); next; next = this.#queue.shift()) {
      operations.push(next);
      isSpoiled = !this.#runOne(next);
      if (isSpoiled) break;
    }
    if (isSpoiled) this.#undo();
    let error = isSpoiled ? undefined : this.#write();
    this.#onSettled();
    // One of them is at fault: each one runs again, alone.
    if (isSpoiled || (error && !(error instanceof StoreUnavailableError))) {
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
    if (!this.#runOne(operation)) this.#undo();
    const error = this.#write();
    if (error) operation.settle = () => operation.reject(error);
    this.#onSettled();
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

  /** @returns false if the operation has thrown after it had changed something */
  #runOne(operation: Operation): boolean {
    const countChanges = () => this.#tables.mark() + this.#live.changes;
    const before = countChanges();
    try {
      operation.run();
      return true;
    } catch (error) {
      operation.settle = () => operation.reject(error);
      return countChanges() === before;
    }
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
