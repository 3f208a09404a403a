// Maps SQLite's errors to names, tells which of them mean that the disk or file failed, and
// explains them to the operator.
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
