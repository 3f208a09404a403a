// Files that a power failure leaves whole, or does not leave at all.
import { closeSync, fsyncSync, linkSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** Puts a file or the entries of a folder on disk. @throws the error of the system */
export function syncPath(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** Creates the file on disk. @throws the error of the system, with EEXIST if the file exists */
export function createFile(path: string, content: string, mode?: number): void {
  const written = `${path}.${process.pid}.new`;
  try {
    writeFileSync(written, content, { mode, flush: true });
    linkSync(written, path);
  } catch (error) {
    if (hasCode(error, 'EEXIST')) throw error;
    // The file system has no links, or only the file itself may be written here.
    writeFileSync(path, content, { flag: 'wx', mode, flush: true });
  } finally {
    rmSync(written, { force: true });
  }
  syncPath(dirname(path));
}

export function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
