// Folders with those above them. Node's own recursive mkdir repeats itself for ever where a file system
// answers ENOENT for a folder whose parent exists, as /proc does.
import { existsSync, mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/** Each folder that is made gets the mode; one that exists is left as it is. @throws Error saying why not */
export function makeFolder(path: string, mode: number): void {
  if (tryMake(path, mode)) return;
  const parent = dirname(path);
  if (existsSync(parent)) throw new Error(`no folder can be created in ${parent}`);
  makeFolder(parent, mode);
  if (!tryMake(path, mode)) throw new Error(`no folder can be created in ${parent}`);
}

/** False where a folder above is missing, or the file system says so. */
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
