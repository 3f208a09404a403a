// The store's failures: names SQLite's errors, tells which of them mean that the disk or the file failed, explains them
// to the operator, and counts and logs them.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { StoreUnavailableError } from '../store.ts';

/** Primary result codes after which SQLite may have rolled back the transaction by itself. */
const STORAGE_FAILURES: Readonly<Record<number, string>> = {
  5: 'SQLITE_BUSY',
  6: 'SQLITE_LOCKED',
  7: 'SQLITE_NOMEM',
  8: 'SQLITE_READONLY',
  10: 'SQLITE_IOERR',
  11: 'SQLITE_CORRUPT',
  13: 'SQLITE_FULL',
  14: 'SQLITE_CANTOPEN',
  15: 'SQLITE_PROTOCOL',
  26: 'SQLITE_NOTADB',
};

/** Extended codes; the low byte is the primary code. */
const EXTENDED: Readonly<Record<number, string>> = {
  266: 'SQLITE_IOERR_READ',
  522: 'SQLITE_IOERR_SHORT_READ',
  778: 'SQLITE_IOERR_WRITE',
  1034: 'SQLITE_IOERR_FSYNC',
  1290: 'SQLITE_IOERR_DIR_FSYNC',
  1546: 'SQLITE_IOERR_TRUNCATE',
  1802: 'SQLITE_IOERR_FSTAT',
  2570: 'SQLITE_IOERR_DELETE',
  3850: 'SQLITE_IOERR_LOCK',
  4106: 'SQLITE_IOERR_CLOSE',
  4618: 'SQLITE_IOERR_SHMOPEN',
  4874: 'SQLITE_IOERR_SHMSIZE',
  5386: 'SQLITE_IOERR_SHMMAP',
  8202: 'SQLITE_IOERR_DATA',
  8458: 'SQLITE_IOERR_CORRUPTFS',
  779: 'SQLITE_CORRUPT_INDEX',
};

/**
 * A quota, a limit on file sizes and a full shared memory file have error codes of their own; all
 * of them pass once space is freed.
 */
const OUT_OF_SPACE: ReadonlySet<string> = new Set([
  'SQLITE_FULL',
  'SQLITE_IOERR_WRITE',
  'SQLITE_IOERR_SHMSIZE',
]);

const DAMAGED: ReadonlySet<string> = new Set(['SQLITE_CORRUPT', 'SQLITE_NOTADB']);

/** The error's SQLite code by name; undefined if the error is not about the disk or the file. */
export function nameStorageFailure(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('errcode' in error)) return undefined;
  const { errcode } = error;
  if (typeof errcode !== 'number') return undefined;
  const primary = STORAGE_FAILURES[errcode & 0xff];
  return primary && (EXTENDED[errcode] ?? primary);
}

/** Code of an error of the operating system: `EIO`. `UNKNOWN` for any other error. */
export function nameSystemError(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'UNKNOWN';
}

export function isStorageFailure(error: unknown): boolean {
  return nameStorageFailure(error) !== undefined;
}

export function isOutOfSpace(error: unknown): boolean {
  return OUT_OF_SPACE.has(nameStorageFailure(error) ?? '');
}

/** Reading or writing failed, and not for lack of space. */
export function isDiskFault(error: unknown): boolean {
  const code = nameStorageFailure(error) ?? '';
  return code.startsWith('SQLITE_IOERR') && !OUT_OF_SPACE.has(code);
}

export function isDamage(code: string): boolean {
  return DAMAGED.has(code) || code.startsWith('SQLITE_CORRUPT');
}

/** Says in one sentence, without a path, what is wrong and what to do. */
export function explainFailure(code: string): string {
  // SQLite has one code for a quota, a limit on file sizes and a disk that fails to write.
  if (code === 'SQLITE_IOERR_WRITE') {
    return `the disk does not accept writes (${code}); free space or raise the quota, or check the disk and the system log`;
  }
  if (OUT_OF_SPACE.has(code) || code === 'ENOSPC' || code === 'EDQUOT')
    return `the disk is full (${code}); free space on it`;
  if (isDamage(code)) return `the database is damaged (${code}); run \`millrace store check\``;
  if (code === 'SQLITE_READONLY' || code === 'SQLITE_CANTOPEN') {
    return `the database cannot be opened for writing (${code}); check the owner and mode of the data folder and whether its file system is mounted read-only`;
  }
  if (code === 'SQLITE_BUSY' || code === 'SQLITE_LOCKED') {
    return `another program has locked the database (${code}); end it`;
  }
  return `the database cannot be used (${code}); check the disk and the system log`;
}

/** The same for files of large payloads. */
export function explainFileFailure(code: string): string {
  if (code === 'ENOENT') {
    return `the file of a large input or output is missing or too short (${code}); run \`millrace store check\``;
  }
  if (code === 'ENOSPC' || code === 'EDQUOT') return explainFailure(code);
  return `a file in millrace.db.payloads cannot be used (${code}); check the owner and mode of the folder, the disk and the system log`;
}

export function describeUnavailable(cause: unknown): StoreUnavailableError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const code = nameStorageFailure(cause);
  const text = `The store cannot be used now: ${reason}`;
  return new StoreUnavailableError(text, { cause, ...(code !== undefined && { code }) });
}

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
