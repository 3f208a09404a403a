// The store over any SQL database: gives an operation its verbs; the driver runs it.
import type { LiveJobs } from '../live/live-jobs.ts';
import { LiveReader, type Result } from '../live/live-reader.ts';
import { LiveTransaction } from '../live/live-transaction.ts';
import type { PayloadFiles, Reader, Step, Store, Transaction, WriteOptions } from '../store.ts';
import type { Tables } from '../tables.ts';

export interface SqlStoreParts {
  driver: SqlDriver;
  tables: Tables;
  /** The driver writes it with each commit. */
  live: LiveJobs;
  /** Default: the database keeps all payloads. */
  files?: PayloadFiles | undefined;
}

export class SqlStore implements Store {
  readonly #parts: SqlStoreParts;

  constructor(parts: SqlStoreParts) {
    this.#parts = parts;
  }

  get files(): PayloadFiles | undefined {
    return this.#parts.files;
  }

  async write<T>(operation: (tx: Transaction) => T, options?: WriteOptions): Promise<T> {
    const { driver, live, tables } = this.#parts;
    return unwrap(await driver.write(() => commitOperation(tables, live, operation), options));
  }

  read<T>(operation: (tx: Reader) => T): Promise<T> {
    const { driver, live, tables } = this.#parts;
    return driver.read(() => readOperation(tables, live, operation));
  }

  reclaim(pages: number): Promise<boolean> {
    return this.#parts.driver.reclaim(pages);
  }

  close(): Promise<void> {
    return this.#parts.driver.close();
  }
}

/** The steps of an operation that reads. They throw what it throws. */
export function* readOperation<T>(
  tables: Tables,
  live: LiveJobs,
  operation: (tx: Reader) => T,
): Step<T> {
  const reader = new LiveReader(tables, live);
  return unwrap(yield* reader.run(() => operation(reader)));
}

/** The steps of an operation that writes. They throw if the database refuses what was changed. */
export function commitOperation<T>(
  tables: Tables,
  live: LiveJobs,
  operation: (tx: Transaction) => T,
): Step<Result<T>> {
  return new LiveTransaction(tables, live).commit(operation);
}

/** @throws what the operation has thrown */
export function unwrap<T>(result: Result<T>): T {
  if ('error' in result) throw result.error;
  return result.value;
}

/**
 * The seam between the SQL store and a database: how operations run, not what they contain. Statements mark their
 * parameters with `?`, in order, and contain no literal question mark. A driver returns integers as numbers, bigints
 * or decimal text, and bytes as Uint8Array.
 */
export interface SqlDriver {
  /**
   * Like `Store.write`; the steps start when their turn in the transaction has come. If they throw, the transaction is
   * undone, and its operations run again, each alone.
   */
  write<T>(start: () => Step<T>, options?: WriteOptions): Promise<T>;
  /** Like `Store.read`. */
  read<T>(start: () => Step<T>): Promise<T>;
  /** Like `Store.reclaim`. */
  reclaim(pages: number): Promise<boolean>;
  /** Like `Store.close`. */
  close(): Promise<void>;
}

/** State in memory that operations change together with the database. */
export interface MemoryState {
  /** The transaction was undone: drops everything, to be read again from the database. */
  forget(): void;
  /** Writes to the database what only the memory has. */
  write(): Step<void>;
  /** The transaction is committed. */
  settle(): void;
}
