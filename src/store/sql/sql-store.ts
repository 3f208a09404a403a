// The store over any SQL database: gives an operation its verbs; the driver runs it.
import type { LiveJobs } from '../live/live-jobs.ts';
import { LiveReader } from '../live/live-reader.ts';
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
  readonly #driver: SqlDriver;
  readonly #reader: Reader;
  readonly #transaction: Transaction;
  readonly files: PayloadFiles | undefined;

  constructor({ driver, files, live, tables }: SqlStoreParts) {
    this.#driver = driver;
    this.files = files;
    this.#reader = new LiveReader(tables, live);
    this.#transaction = new LiveTransaction(tables, live);
  }

  write<T>(operation: (tx: Transaction) => Step<T>, options?: WriteOptions): Promise<T> {
    return this.#driver.write(() => operation(this.#transaction), options);
  }

  read<T>(operation: (tx: Reader) => Step<T>): Promise<T> {
    return this.#driver.read(() => operation(this.#reader));
  }

  reclaim(pages: number): Promise<boolean> {
    return this.#driver.reclaim(pages);
  }

  close(): Promise<void> {
    return this.#driver.close();
  }
}

/**
 * The seam between the SQL store and a database: how operations run, not what they contain. Statements mark their
 * parameters with `?`, in order, and contain no literal question mark. A driver returns integers as numbers, bigints
 * or decimal text, and bytes as Uint8Array.
 */
export interface SqlDriver {
  /** Like `Store.write`; the operation starts when its turn in the transaction has come. */
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
  /** Number of changes since the last commit. */
  readonly changes: number;
  /** Steps of `write` run. */
  readonly isWriting: boolean;
  /** The transaction was undone: what is in memory is read again from the database. */
  forget(): void;
  /** Writes to the database what only the memory has. */
  write(): Step<void>;
  /** The transaction is committed. */
  settle(): void;
}
