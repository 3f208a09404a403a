// The size of a store's tables on a Postgres server, for its metrics.
import type { Query } from '../store.ts';
import type { PostgresDriver } from './postgres.ts';

/** Each measurement costs the server some system calls for each table and index. */
const EVERY_MS = 60_000;

const SIZE: Query = {
  sql: `select coalesce(sum(pg_total_relation_size(oid)), 0) as bytes from pg_class
    where relkind = 'r' and relnamespace = current_schema()::regnamespace`,
  params: [],
};

export class DatabaseSize {
  readonly #driver: Pick<PostgresDriver, 'fault' | 'read'>;
  readonly #now: () => number;
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<number | undefined> = Promise.resolve(undefined);

  /** `now`: a monotonic time, ms. */
  constructor(driver: Pick<PostgresDriver, 'fault' | 'read'>, now = () => performance.now()) {
    this.#driver = driver;
    this.#now = now;
  }

  /**
   * Bytes of all tables with their indexes, not older than a minute. While the database is away: the last ones;
   * undefined if there are none.
   */
  read(): Promise<number | undefined> {
    const now = this.#now();
    if (now - this.#readAt >= EVERY_MS && this.#driver.fault === undefined) {
      this.#readAt = now;
      const before = this.#reading;
      this.#reading = this.#measure().catch(() => before);
    }
    return this.#reading;
  }

  #measure(): Promise<number | undefined> {
    return this.#driver.read(function* () {
      const [row] = yield SIZE;
      return Number(row?.['bytes']);
    });
  }
}
