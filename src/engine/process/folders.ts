// Lists and removes folders of the engine. A pod that runs as the platform's own user may have removed, replaced or closed
// them.
import { chmod, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** Empty if there is no such folder. */
export async function listNames(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (isMissing(error)) return [];
    if (!isDenied(error)) throw error;
    await chmod(folder, 0o700);
    return readdir(folder);
  }
}

export async function listPaths(folder: string): Promise<string[]> {
  return (await listNames(folder)).map((name) => join(folder, name));
}

export function ignoreMissing(error: unknown): undefined {
  if (!isMissing(error)) throw error;
}

function isMissing(error: unknown): boolean {
  return hasCode(error, ['ENOENT', 'ENOTDIR']);
}

export function isDenied(error: unknown): boolean {
  return hasCode(error, ['EACCES', 'EPERM']);
}

function hasCode(error: unknown, codes: readonly string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(`${error.code}`);
}

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
