// The store over any SQL database: gives an operation its verbs; the driver runs it.
import type { SqlDriver } from './sql-driver.ts';
import { SqlReader } from './sql-reader.ts';
import { SqlTransaction } from './sql-transaction.ts';
import type { Reader, Step, Store, Transaction, WriteOptions } from './store.ts';

export class SqlStore implements Store {
  readonly #driver: SqlDriver;
  readonly #reader: Reader;
  readonly #transaction: Transaction;

  constructor(driver: SqlDriver) {
    this.#driver = driver;
    this.#reader = new SqlReader('');
    this.#transaction = new SqlTransaction(driver.lockClause);
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
