// What a Postgres server tells about itself: whether Millrace can use it, and how large a database is.
import type { Query } from '../store.ts';
import type { PostgresDriver } from './postgres.ts';
import type { Session } from './session.ts';

/** The database cannot serve as a store, and another attempt would not help: its version, its mode, its use. */
export class UnfitDatabaseError extends Error {
  override readonly name = 'UnfitDatabaseError';
}

const OLDEST_VERSION = 15;

/** @throws UnfitDatabaseError */
export async function checkServer(session: Session): Promise<void> {
  const { rows } = await session.execute(
    `select current_setting('server_version_num')::int as version, pg_is_in_recovery() as standby,
      current_setting('transaction_read_only') as read_only,
      current_setting('synchronous_commit') as synchronous, current_setting('fsync') as fsync`,
  );
  const [server = {}] = rows;
  const version = Math.floor(Number(server['version']) / 10_000);
  if (version < OLDEST_VERSION) {
    throw new UnfitDatabaseError(
      `the server is Postgres ${version}; use Postgres ${OLDEST_VERSION} or later`,
    );
  }
  if (server['standby'] === true || server['read_only'] === 'on') {
    throw new UnfitDatabaseError(
      'the database is read-only; use the primary server, not a standby',
    );
  }
  // What is acknowledged is on disk.
  if (server['synchronous'] === 'off') await session.execute('set synchronous_commit = on');
}

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
