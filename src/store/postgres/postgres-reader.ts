// Reads a database that another process owns: what it has committed, from the rows alone.
import { LiveJobs } from '../live/live-jobs.ts';
import { readOperation } from '../sql/sql-store.ts';
import { SqlTables } from '../sql/sql-tables.ts';
import { type Reader, type Store, StoreUnavailableError } from '../store.ts';
import { describeUnavailable } from './postgres-errors.ts';
import { runSteps, Session, type SessionOptions } from './session.ts';

/** A store that refuses to write, as unavailable. It connects with the first read, and again after the connection was lost. */
export class PostgresReader implements Store {
  readonly #options: SessionOptions;
  #session: Promise<Session> | undefined;
  #isClosed = false;

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  async read<T>(operation: (tx: Reader) => T): Promise<T> {
    if (this.#isClosed) throw new StoreUnavailableError('The store is closed');
    const tables = new SqlTables();
    // Nothing is kept in memory: the owner changes the rows.
    const steps = readOperation(tables, new LiveJobs(tables), operation);
    this.#session ??= this.#connect();
    return runSteps(steps, await this.#session);
  }

  write<T>(): Promise<T> {
    return Promise.reject(new StoreUnavailableError('another node writes this database'));
  }

  async reclaim(): Promise<boolean> {
    return false;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const session = await this.#session?.catch(() => undefined);
    await session?.end();
  }

  async #connect(): Promise<Session> {
    const forget = () => {
      this.#session = undefined;
    };
    try {
      const session = await Session.connect(this.#options);
      void session.ended.then(forget);
      return session;
    } catch (error) {
      forget();
      throw describeUnavailable(error);
    }
  }
}
