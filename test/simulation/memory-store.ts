// A store in memory. The conformance suite of stores runs on it and on SQLite; it takes a fraction of the
// time of SQLite, so that a simulation can play thousands of worlds.
import type { Reader, Step, Store, Transaction } from '../../src/store/store.ts';
import { MemoryTables } from './memory-tables.ts';

/** Runs within a commit; the returned function runs after the commit. */
type Operation = () => () => void;

export class MemoryStore implements Store {
  readonly #tables = new MemoryTables();
  #queue: Operation[] = [];
  #isScheduled = false;
  #isWriting = false;
  #isClosed = false;

  write<T>(operation: (tx: Transaction) => Step<T>): Promise<T> {
    if (this.#isClosed) return Promise.reject(describeClosed());
    return new Promise((resolve, reject) => {
      this.#queue.push(() => {
        try {
          const value = run(operation(this.#tables));
          this.#tables.keep();
          return () => resolve(value);
        } catch (error) {
          this.#tables.undo();
          return () => reject(error);
        }
      });
      this.#schedule();
    });
  }

  /** A call from within an operation waits one microtask, which runs after the commit. */
  async read<T>(operation: (tx: Reader) => Step<T>): Promise<T> {
    if (this.#isWriting) await undefined;
    if (this.#isClosed) throw describeClosed();
    return run(operation(this.#tables));
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

  /** Also commits operations that are added while it runs. */
  #commit(): void {
    const settling: (() => void)[] = [];
    this.#isWriting = true;
    for (let next = this.#queue.shift(); next; next = this.#queue.shift()) settling.push(next());
    this.#isWriting = false;
    for (const settle of settling) settle();
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
