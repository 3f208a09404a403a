// Records the store's failures: counts them by code and logs each code once a minute.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { explainFailure, explainFileFailure } from './sqlite-errors.ts';

/**
 * A failing disk fails every write, so each code is logged once in this time, with a count of the
 * others, ms.
 */
const LOG_EVERY_MS = 60_000;

const MAINTENANCE_FAILED = 'store maintenance failed, retrying';

/** `sync` is the last one: nothing can be read or written after it. */
export type StoreOperation =
  | 'open'
  | 'write'
  | 'payload'
  | 'sync'
  | 'read'
  | 'checkpoint'
  | 'reclaim'
  | 'probe';

export interface StoreFailure {
  operation: StoreOperation;
  /** SQLite code, or system error code for `sync` and `payload`: `SQLITE_FULL`, `ENOSPC`. */
  code: string;
  error: unknown;
}

interface Window {
  until: number;
  suppressed: number;
}

export interface StoreHealthOptions {
  clock: Pick<Clock, 'now'>;
  log: Log;
}

export class StoreHealth {
  readonly #options: StoreHealthOptions;
  /** By code of the failure, or by failed operation. */
  readonly #windows = new Map<string, Window>();
  readonly #counts = new Map<string, number>();

  constructor(options: StoreHealthOptions) {
    this.#options = options;
  }

  /** Failures by SQLite code or system error code, since the start. */
  get counts(): ReadonlyMap<string, number> {
    return this.#counts;
  }

  noteFailure = ({ code, error, operation }: StoreFailure): void => {
    this.#counts.set(code, (this.#counts.get(code) ?? 0) + 1);
    const about = { code, operation, err: error };
    const reason = operation === 'payload' ? explainFileFailure(code) : explainFailure(code);
    this.#logRarely({ name: code, about, message: `store failed: ${reason}` });
  };

  /** Maintenance is retried every few seconds. */
  noteMaintenanceFailure(error: unknown): void {
    this.#logRarely({ name: 'maintenance', about: { err: error }, message: MAINTENANCE_FAILED });
  }

  /** Logs the number of suppressed failures once their minute is over. */
  flush(): void {
    const now = this.#options.clock.now();
    for (const [name, { suppressed, until }] of this.#windows) {
      if (now < until) continue;
      this.#windows.delete(name);
      if (suppressed > 0) {
        this.#options.log.error({ code: name, suppressed }, 'store failed repeatedly');
      }
    }
  }

  #logRarely({ about, message, name }: { name: string; about: object; message: string }): void {
    const now = this.#options.clock.now();
    const window = this.#windows.get(name);
    if (window && now < window.until) {
      window.suppressed++;
      return;
    }
    const suppressed = window?.suppressed ?? 0;
    this.#windows.set(name, { until: now + LOG_EVERY_MS, suppressed: 0 });
    this.#options.log.error({ ...about, ...(suppressed > 0 && { suppressed }) }, message);
  }
}
