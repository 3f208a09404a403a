// Puts a file or the entries of a folder on disk.
import { closeSync, fsyncSync, openSync } from 'node:fs';

/** @throws the error of the system */
export function syncPath(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
