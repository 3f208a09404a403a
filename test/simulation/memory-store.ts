// A store in maps, for worlds of which thousands are played: it keeps the promises of the one on SQLite
// (the same suite proves both) in a fraction of the time, and knows no disk.
import type { Reader, Step, Store, Transaction } from '../../src/store/store.ts';
import { MemoryTables } from './memory-tables.ts';

/** Runs in a commit; what it returns is called after it. */
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

  /** Whoever calls from within an operation has to wait for the commit: a microtask comes after. */
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

  /** With what the operations themselves ask for. */
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
