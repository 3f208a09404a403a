// The store on an embedded SQLite file. Everything on it is synchronous, so reads and batches of
// writes never overlap; that no second process opens the file is seen to by whoever opens it.
import { GroupCommit } from './group-commit.ts';
import type { SqlDriver } from './sql-driver.ts';
import { SqlStore } from './sql-store.ts';
import {
  describeUnavailable,
  isStorageFailure,
  SqliteConnection,
  type SqliteOptions,
} from './sqlite-connection.ts';
import type { Step, Store } from './store.ts';

export type { SqliteOptions } from './sqlite-connection.ts';

/**
 * Opens the store and brings its schema up to date. Throws SchemaTooNewError if a newer version of
 * the program wrote the file, and what SQLite says if it is no database or cannot be opened.
 */
export function openSqliteStore(options: SqliteOptions): Store {
  return new SqlStore(new SqliteDriver(options));
}

class SqliteDriver implements SqlDriver {
  /** One connection, one operation at a time: there is nobody to lock against. */
  readonly lockClause = '';
  readonly #connection: SqliteConnection;
  readonly #commits: GroupCommit;
  #closed = false;

  constructor(options: SqliteOptions) {
    this.#connection = new SqliteConnection(options);
    this.#commits = new GroupCommit(this.#connection);
  }

  write<T>(start: () => Step<T>): Promise<T> {
    return this.#closed ? Promise.reject(describeClosed()) : this.#commits.write(start);
  }

  async read<T>(start: () => Step<T>): Promise<T> {
    await this.#leaveTransaction();
    return this.#guard(() => this.#connection.runSteps(start()));
  }

  async reclaim(pages: number): Promise<boolean> {
    await this.#leaveTransaction();
    return this.#guard(() => this.#connection.reclaim(pages));
  }

  async close(): Promise<void> {
    await this.#leaveTransaction();
    if (this.#closed) return;
    this.#closed = true;
    this.#commits.flush();
    this.#connection.close();
  }

  /** Whoever calls from within an operation has to wait for the commit: a microtask comes after. */
  async #leaveTransaction(): Promise<void> {
    if (this.#commits.isWriting) await undefined;
  }

  #guard<T>(act: () => T): T {
    if (this.#closed) throw describeClosed();
    try {
      return act();
    } catch (error) {
      throw isStorageFailure(error) ? describeUnavailable(error) : error;
    }
  }
}

function describeClosed(): Error {
  return new Error('The store is closed');
}
