// A Postgres database as a whole: whether Millrace can use it, the advisory lock of a store, and its size. Only the
// session that holds the lock uses the tables of the schema.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Query } from '../store.ts';
import type { PostgresTarget } from './connection-url.ts';
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
  // An acknowledged commit must be on disk.
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

/** First half of the lock's key: 'mill' in ASCII. The second half is made from the schema's name. */
const LOCK_CLASS = 0x6d_69_6c_6c;
const LOCK_RETRY_MS = 100;
/** How long to wait for the end of a session that was told to end, ms. */
const END_MS = 1_000;

/** Condition for the rows of pg_locks in this database. */
const HERE = 'database = (select oid from pg_database where datname = current_database())';
/** Condition for the rows of pg_locks of transactions that write the number of a commit, or wait to do so. */
const WRITERS = `locktype = 'relation' and mode = 'RowExclusiveLock'
    and relation = to_regclass('last_commit') and ${HERE}`;

/** Another node owns the store now. */
export class ShardLostError extends Error {
  override readonly name = 'ShardLostError';

  constructor(schema: string) {
    super(`another node owns the shard in the schema ${schema} now`);
  }
}

export interface LockOptions {
  target: PostgresTarget;
  /** How long to wait for another session's end, ms. */
  waitMs: number;
  /** Called before each attempt. */
  prepare?: () => Promise<void>;
  signal?: AbortSignal;
}

/** @throws UnfitDatabaseError if another session keeps the lock */
export async function takeLock(session: Session, options: LockOptions): Promise<void> {
  const { prepare, signal, target, waitMs } = options;
  const end = performance.now() + waitMs;
  for (;;) {
    await prepare?.();
    if (await tryLock(session, target.schema)) return;
    if (performance.now() > end || signal?.aborted) break;
    await sleep(LOCK_RETRY_MS);
  }
  throw describeUse(target);
}

/** @returns false if another session has the lock */
export async function tryLock(session: Session, schema: string): Promise<boolean> {
  const { rows } = await session.execute(
    `select pg_try_advisory_lock(${describeKey(schema)}) as locked`,
  );
  return rows[0]?.['locked'] === true;
}

/** Why the lock cannot be taken. */
export function describeUse({ name, schema }: PostgresTarget): UnfitDatabaseError {
  return new UnfitDatabaseError(
    `another platform uses ${name} (schema ${schema}); stop it, or give each platform a schema of its own ` +
      'with ?search_path=NAME',
  );
}

export async function releaseLock(session: Session, schema: string): Promise<void> {
  await session.execute(`select pg_advisory_unlock(${describeKey(schema)})`);
}

/**
 * Ends every other session that holds the lock of the schema's store, and with it its transaction. Also ends those with a
 * transaction that writes: a session may have lost its lock, as behind a pooler that resets it. While its process is frozen,
 * the new owner could not write before Postgres ends the transaction.
 */
export async function evictHolder(session: Session, schema: string): Promise<void> {
  const holders = `${describeHolders(LOCK_CLASS)} and granted and objid = hashtext('${schema}')::oid`;
  await session.execute(
    `select pg_terminate_backend(pid, ${END_MS}) from (
        select distinct pid from pg_locks where ${holders} or ${WRITERS}
      ) as holder where pid <> pg_backend_pid()`,
  );
}

/** A process number alone may belong to another session by now; only the old one holds the lock. */
export function describeTermination(pid: number): string {
  return `select pg_terminate_backend(pid) from pg_locks
    where ${describeHolders(LOCK_CLASS)} and pid = ${pid}`;
}

/** Condition for the rows of pg_locks with advisory locks of two halves, of which the first one is known. */
export function describeHolders(lockClass: number): string {
  return `locktype = 'advisory' and objsubid = 2 and classid = ${lockClass} and ${HERE}`;
}

function describeKey(schema: string): string {
  return `${LOCK_CLASS}, hashtext('${schema}')`;
}
