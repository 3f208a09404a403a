// Folders of pods, and the user that pods run as if the platform is root: gives folders to that user, finds paths that it
// cannot read, lists and removes folders that a pod may have replaced or closed. As root, never changes or removes a path that
// a pod could replace by a link.
import { type ExecFileException, execFile } from 'node:child_process';
import { constants, type Stats } from 'node:fs';
import { chmod, chown, lstat, mkdir, open, readdir, rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';

export interface PodUser {
  uid: number;
  gid: number;
  /** For messages. */
  name: string;
}

const OWNER_ONLY = 0o700;
/** May be entered but not listed. */
const PASSABLE = 0o711;
/** Limit of a call, ms. */
const CALL_LIMIT_MS = 60_000;

/** The platform's folder above those of pods; created if it is missing. */
export async function provideParent(path: string, user: PodUser | undefined): Promise<void> {
  await mkdir(path, { recursive: true, mode: OWNER_ONLY });
  if (user) await chmod(path, PASSABLE);
}

/** A pod's own folder with its content; created if it is missing. Its parent must exist. */
export async function providePodFolder(path: string, user: PodUser | undefined): Promise<void> {
  await mkdir(path, { mode: OWNER_ONLY }).catch(ignoreExisting);
  if (user) await chownTree(path, user);
}

/** Does nothing if the folder already belongs to the user. @throws Error */
async function chownTree(path: string, { gid, uid }: PodUser): Promise<void> {
  const before = await lstat(path);
  if (before.uid === uid && before.gid === gid) return;
  // The folder itself comes last, so that an interrupted call is repeated. chown follows no links
  // here.
  await run('chown', ['-hR', `${uid}:${gid}`, `${path}/.`]);
  await chown(path, uid, gid);
}

/**
 * Returns those of the absolute paths (files to read, folders to enter) that the user cannot
 * access.
 */
export async function findUnreadable(paths: readonly string[], user: PodUser): Promise<string[]> {
  const isUsable = 'if [ -d "$path" ]; then [ -x "$path" ]; else [ -r "$path" ]; fi';
  const script = `for path; do ${isUsable} || printf "%s\\0" "$path"; done`;
  const printed = await run('/bin/sh', ['-c', script, 'sh', ...paths], user);
  return printed.split('\0').filter(Boolean);
}

/**
 * Removes, as that user, a folder whose content the user may change meanwhile. Root would follow a
 * link that replaces a folder between two calls. @throws Error if the user cannot remove all of it
 */
export async function removeAsOwner(path: string): Promise<void> {
  const entry = await readEntry(path);
  const parent = entry && (await readEntry(dirname(path)));
  if (!entry || !parent) return;
  if (process.geteuid?.() !== 0) return removeTree(path);
  if (parent.uid !== 0) {
    await sweepAs(parent, path);
    if (await readEntry(path)) throw new Error(`${path} could not be removed by its owner`);
  } else if (entry.isDirectory() && entry.uid !== 0) {
    await sweepAs(entry, path);
    // The parent folder belongs to the platform, so only root can remove the empty folder. Another removal may have done so.
    await rmdir(path).catch(ignoreMissing);
  } else await removeTree(path);
}

/** Undefined if it does not exist. */
function readEntry(path: string): Promise<Stats | undefined> {
  return lstat(path).catch(() => undefined);
}

async function sweepAs({ gid, uid }: Pick<Stats, 'uid' | 'gid'>, path: string): Promise<void> {
  const sweep = 'cd "$1" && chmod -R u+rwX . 2>/dev/null; rm -rf "$1" 2>/dev/null || :';
  await run('/bin/sh', ['-c', sweep, 'sh', path], { uid, gid });
}

/**
 * Gives the user a folder that its pod could replace. If it is no longer a folder, it stays
 * unchanged.
 */
export async function chownFolder(path: string, { gid, uid }: PodUser): Promise<void> {
  const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;
  // Changing the owner by name could give away a hard link to a file of root.
  const folder = await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(() => undefined);
  try {
    await folder?.chown(uid, gid);
  } finally {
    await folder?.close();
  }
}

function run(
  program: string,
  args: readonly string[],
  user?: Pick<PodUser, 'uid' | 'gid'>,
): Promise<string> {
  const options = { cwd: '/', env: { PATH: '/usr/bin:/bin' }, timeout: CALL_LIMIT_MS };
  const as = user && { uid: user.uid, gid: user.gid };
  return new Promise((resolve, reject) => {
    execFile(program, args, { ...options, ...as }, (error: ExecFileException | null, stdout) => {
      if (error) reject(error);
      else resolve(stdout);
    });
  });
}

function ignoreExisting(error: unknown): void {
  if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
}

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
