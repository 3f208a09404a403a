// The platform's database on a Postgres server: explains and logs its failures, and reports its status.
import type { ShardCounts, StoreSizes, StoreStatus } from '../api/metrics/store-status.ts';
import type { Log } from '../base/log.ts';
import type { ServedShards } from '../cluster/local-shards.ts';
import {
  type PostgresTarget,
  readPostgresUrl,
  StoreUrlError,
} from '../store/postgres/connection-url.ts';
import { DatabaseSize } from '../store/postgres/database.ts';
import { openPostgres, type PostgresDriver } from '../store/postgres/postgres.ts';
import { codeOf, explainPostgresError } from '../store/postgres/postgres-errors.ts';
import { logMigration } from '../store/schema-migration.ts';
import { type Store, StoreUnavailableError } from '../store/store.ts';
import { PlatformOptionError } from './option-error.ts';
import type { StoreLimits } from './platform-options.ts';

/** Each code of a failure is logged once in this time, ms. */
const LOG_EVERY_MS = 60_000;
/** How long a full disk of the server is a warning after the last commit that failed of it, ms. */
const WARN_MS = 60_000;
const DISK_FULL = '53100';
const FULL_WARNING = `the database has refused commits: the disk of its server is full (${DISK_FULL})`;

export interface PostgresDataOptions {
  url: string;
  password: string | undefined;
  limits: StoreLimits;
  log: Log;
  onLost: (() => void) | undefined;
}

export interface PostgresData {
  store: Store;
  status: StoreStatus;
}

/** @throws PlatformOptionError */
export async function openPostgresData(options: PostgresDataOptions): Promise<PostgresData> {
  const { limits, log, onLost, password, url } = options;
  const target = readTarget(url, password);
  const failures = new PostgresFailures(log);
  try {
    const { driver, store } = await openPostgres({
      ...limits,
      target,
      onFailure: failures.note,
      onMigrated: (migration) => logMigration(log, migration),
      onReconnect: failures.end,
      onLost: (error) => {
        log.error({ err: error }, 'database lost');
        onLost?.();
      },
    });
    return { store, status: new PostgresStatus(driver, failures) };
  } catch (error) {
    throw explainOpening(error, target);
  }
}

export function explainOpening(
  error: unknown,
  { name }: Pick<PostgresTarget, 'name'>,
): PlatformOptionError {
  return refuse('unusable', `${name} cannot be used: ${explainPostgresError(error)}`);
}

/** @throws PlatformOptionError */
export function readTarget(url: string, password: string | undefined) {
  try {
    return readPostgresUrl(url, password);
  } catch (error) {
    if (error instanceof StoreUrlError) throw refuse('invalid', `the URL ${error.message}`);
    throw error;
  }
}

function refuse(fault: PlatformOptionError['fault'], problem: string): PlatformOptionError {
  return new PlatformOptionError(fault, 'store', problem);
}

/** Counts failures by code, and logs each code once a minute. */
export class PostgresFailures {
  readonly counts = new Map<string, number>();
  readonly #log: Log;
  readonly #loggedAt = new Map<string, number>();
  #fullAt = Number.NEGATIVE_INFINITY;

  constructor(log: Log) {
    this.#log = log;
  }

  /** Failures of late that need attention although the connection works. */
  get warnings(): string[] {
    return performance.now() - this.#fullAt < WARN_MS ? [FULL_WARNING] : [];
  }

  readonly note = (error: unknown): void => {
    const code = codeOf(error);
    this.counts.set(code, (this.counts.get(code) ?? 0) + 1);
    const now = performance.now();
    if (code === DISK_FULL) this.#fullAt = now;
    if (now - (this.#loggedAt.get(code) ?? Number.NEGATIVE_INFINITY) < LOG_EVERY_MS) return;
    this.#loggedAt.set(code, now);
    const reason = explainPostgresError(error);
    this.#log.error({ code, err: error, reason }, 'database failed');
  };

  readonly end = (): void => {
    this.#loggedAt.clear();
    this.#log.info('reconnected to the database');
  };
}

class PostgresStatus implements StoreStatus {
  readonly #driver: PostgresDriver;
  readonly #failures: PostgresFailures;
  readonly #size: DatabaseSize;

  constructor(driver: PostgresDriver, failures: PostgresFailures) {
    this.#driver = driver;
    this.#failures = failures;
    this.#size = new DatabaseSize(driver);
  }

  get warnings(): string[] {
    return this.#failures.warnings;
  }

  get failures(): ReadonlyMap<string, number> {
    return this.#failures.counts;
  }

  async findFault(): Promise<string | undefined> {
    const { fault } = this.#driver;
    if (fault === undefined) return undefined;
    if (fault instanceof StoreUnavailableError) return fault.message;
    return `no connection to the database: ${explainPostgresError(fault)}`;
  }

  /** The write-ahead log is that of the whole server, and its operator's. */
  async measure(): Promise<StoreSizes> {
    return { database: await this.#size.read(), wal: undefined };
  }
}

export interface NodeStatusOptions {
  failures: PostgresFailures;
  /** Why this node cannot serve anything now; undefined if it can. */
  findFault: () => string | undefined;
  served: Pick<ServedShards, 'open' | 'failing' | 'givenUp'>;
}

export class NodeStatus implements StoreStatus {
  readonly #options: NodeStatusOptions;
  readonly #sizes = new Map<number, DatabaseSize>();

  constructor(options: NodeStatusOptions) {
    this.#options = options;
  }

  get warnings(): string[] {
    const { failing, givenUp } = this.#options.served;
    return [
      ...this.#options.failures.warnings,
      ...failing.map((id) => `this node cannot open shard ${id} and tries again; see its log`),
      ...givenUp.map(
        (id) =>
          `this node could not open shard ${id} and has left it to another node; see its log, and restart it once the cause is gone`,
      ),
    ];
  }

  get shards(): ShardCounts {
    const { failing, givenUp, open } = this.#options.served;
    return { open: open.length, failing: failing.length, givenUp: givenUp.length };
  }

  get failures(): ReadonlyMap<string, number> {
    return this.#options.failures.counts;
  }

  async findFault(): Promise<string | undefined> {
    return this.#options.findFault();
  }

  noteOpen(shard: number, size: DatabaseSize): void {
    this.#sizes.set(shard, size);
  }

  /** Otherwise the closed store would stay in memory. */
  noteClosed(shard: number): void {
    this.#sizes.delete(shard);
  }

  /** Of the shards that this node serves. */
  async measure(): Promise<StoreSizes> {
    const sizes = await Promise.all([...this.#sizes.values()].map((size) => size.read()));
    const known = sizes.filter((size) => size !== undefined);
    const database = known.length > 0 ? known.reduce((sum, size) => sum + size, 0) : undefined;
    return { database, wal: undefined };
  }
}
