// Removes folders that programs have written to, such as disks and volumes.
import { chmod, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ignoreMissing, isDenied } from './folder-listing.ts';

/**
 * Does nothing if it does not exist. Makes read-only folders writable first, as package caches have
 * them: otherwise even their owner cannot empty them.
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

/** Does not follow links, which lead to other files. Another removal may run at the same time. */
async function openFolders(path: string): Promise<void> {
  await chmod(path, 0o700).catch(ignoreMissing);
  const entries = await readdir(path, { withFileTypes: true }).catch(ignoreMissing);
  for (const entry of entries ?? []) {
    if (entry.isDirectory()) await openFolders(join(path, entry.name));
  }
}
