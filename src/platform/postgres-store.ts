// The platform's database on a Postgres server: explains and logs its failures, and reports its status.
import type { StoreStatus } from '../api/routes/store-status.ts';
import type { Log } from '../base/log.ts';
import { readPostgresUrl, StoreUrlError } from '../store/postgres/connection-url.ts';
import { openPostgres, type PostgresDriver } from '../store/postgres/postgres.ts';
import { codeOf, explainPostgresError } from '../store/postgres/postgres-errors.ts';
import type { Store } from '../store/store.ts';
import { PlatformOptionError } from './option-error.ts';

/** Each code of a failure is logged once in this time, ms. */
const LOG_EVERY_MS = 60_000;

export interface PostgresDataOptions {
  url: string;
  password: string | undefined;
  log: Log;
  onLost: (() => void) | undefined;
}

export interface PostgresData {
  store: Store;
  status: StoreStatus;
}

/** @throws PlatformOptionError */
export async function openPostgresData(options: PostgresDataOptions): Promise<PostgresData> {
  const { log, onLost, password, url } = options;
  const target = readTarget(url, password);
  const failures = new Failures(log);
  try {
    const { driver, store } = await openPostgres({
      target,
      onFailure: failures.note,
      onReconnect: failures.end,
      onLost: (error) => {
        log.error({ err: error }, 'database lost');
        onLost?.();
      },
    });
    return { store, status: new PostgresStatus(driver, failures) };
  } catch (error) {
    throw refuse('unusable', `${target.name} cannot be used: ${explainPostgresError(error)}`);
  }
}

function readTarget(url: string, password: string | undefined) {
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
class Failures {
  readonly counts = new Map<string, number>();
  readonly #log: Log;
  readonly #loggedAt = new Map<string, number>();

  constructor(log: Log) {
    this.#log = log;
  }

  readonly note = (error: unknown): void => {
    const code = codeOf(error);
    this.counts.set(code, (this.counts.get(code) ?? 0) + 1);
    const now = performance.now();
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
  readonly warnings = [];
  readonly #driver: PostgresDriver;
  readonly #failures: Failures;

  constructor(driver: PostgresDriver, failures: Failures) {
    this.#driver = driver;
    this.#failures = failures;
  }

  get failures(): ReadonlyMap<string, number> {
    return this.#failures.counts;
  }

  async findFault(): Promise<string | undefined> {
    const { fault } = this.#driver;
    return fault === undefined ? undefined : `no database: ${explainPostgresError(fault)}`;
  }

  /** The server measures its own. */
  measure(): { database: number; wal: number } {
    return { database: 0, wal: 0 };
  }
}
