// One process at a time may use a data folder. The lock is one of the operating system's on a file of
// its own, held through SQLite: it ends with the process, however that ends.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { makeFolder } from '../base/make-folder.ts';
import { describeError, PlatformOptionError } from './option-error.ts';

const SQLITE_BUSY = 5;
const OWNER_ONLY = 0o700;

export interface DataLock {
  release(): void;
}

/** Makes the folder, for its owner alone, if it is missing. @throws PlatformOptionError naming the process that has it */
export function lockDataFolder(folder: string): DataLock {
  try {
    // Inputs and outputs of jobs are nobody else's business.
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
    // Nothing is ever written to it: a journal on a full disk would only be in the way.
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

/** Only for the message above: what counts is the lock, which a full disk does not prevent. */
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
