// Creates a folder and its missing parents. Node's recursive mkdir loops forever if a file system
// answers ENOENT although the parent exists, as /proc does.
import { existsSync, lstatSync, mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/** Each created folder gets the mode; existing folders keep theirs. @throws Error with the reason */
export function makeFolder(path: string, mode: number): void {
  if (tryMake(path, mode)) return;
  const parent = dirname(path);
  if (existsSync(parent)) throw new Error(`no folder can be created in ${parent}`);
  makeFolder(parent, mode);
  if (!tryMake(path, mode)) throw new Error(`no folder can be created in ${parent}`);
}

/** Bits of a mode that let other users change the folder. */
const OTHERS_WRITE = 0o022;

/**
 * Creates a folder that only this user can change, in a place where other users may have created one of the same name.
 * @throws Error if another user owns it or can write to it
 */
export function makeOwnFolder(path: string): void {
  makeFolder(path, 0o700);
  const stats = lstatSync(path);
  const uid = process.getuid?.() ?? stats.uid;
  if (stats.isDirectory() && stats.uid === uid && (stats.mode & OTHERS_WRITE) === 0) return;
  throw new Error(`${path} belongs to another user, or other users can write to it`);
}

/** False if a parent is missing or the file system reports ENOENT. */
function tryMake(path: string, mode: number): boolean {
  try {
    mkdirSync(path, { mode });
    return true;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ENOENT') return false;
    if (code === 'EEXIST' && statSync(path).isDirectory()) return true;
    throw error;
  }
}
