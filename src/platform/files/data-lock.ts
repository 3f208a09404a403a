// Locks a data folder for one process. It is an operating system lock on a file, held through
// SQLite. It ends with the process, even if the process crashes.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { makeFolder } from '../../base/make-folder.ts';
import { describeError, PlatformOptionError } from '../option-error.ts';

const SQLITE_BUSY = 5;
const OWNER_ONLY = 0o700;

export interface DataLock {
  release(): void;
}

/**
 * Creates the folder, for its owner only, if it is missing. @throws PlatformOptionError that names
 * the process that has the lock
 */
export function lockDataFolder(folder: string): DataLock {
  try {
    // Inputs and outputs of jobs may be confidential.
    makeFolder(folder, OWNER_ONLY);
    return openLock(folder);
  } catch (error) {
    if (error instanceof PlatformOptionError) throw error;
    const problem = `${folder} cannot be used: ${describeError(error)}`;
    throw new PlatformOptionError('unusable', 'dataFolder', problem);
  }
}

function openLock(folder: string): DataLock {
  const database = new DatabaseSync(join(folder, 'lock.db'), { timeout: 0 });
  const holderFile = join(folder, 'lock.pid');
  try {
    // The file is never written, so it needs no journal, which would fail on a full disk.
    database.exec('pragma journal_mode = memory');
    database.exec('begin exclusive');
  } catch (error) {
    database.close();
    if (!isBusy(error)) throw error;
    const problem = `${folder} is in use by ${readHolder(holderFile)}`;
    throw new PlatformOptionError('unusable', 'dataFolder', problem);
  }
  noteHolder(holderFile);
  return { release: () => database.close() };
}

/** Only for the error message: the lock itself also works on a full disk. */
function noteHolder(holderFile: string): void {
  try {
    writeFileSync(holderFile, String(process.pid));
  } catch (error) {
    const isFull = error instanceof Error && 'code' in error && error.code === 'ENOSPC';
    if (!isFull) throw error;
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY;
}

function readHolder(holderFile: string): string {
  try {
    return `another process (pid ${readFileSync(holderFile, 'utf8').trim()})`;
  } catch {
    return 'another process';
  }
}
