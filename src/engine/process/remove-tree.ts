// Removes folders that programs have written to, as their disks and volumes.
import { chmod, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isDenied } from './folder-listing.ts';

/**
 * Does nothing if it is not there. Folders may have been made read-only, as package caches are: their
 * owner cannot empty these either before it may write to them again.
 */
export async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    if (!isDenied(error)) throw error;
    await openFolders(path);
    await rm(path, { recursive: true, force: true });
  }
}

/** Links are not followed: they lead to what is not its own. */
async function openFolders(path: string): Promise<void> {
  await chmod(path, 0o700);
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (entry.isDirectory()) await openFolders(join(path, entry.name));
  }
}
