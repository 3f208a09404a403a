// The user that pods run as where the platform is root: gives folders to that user, and finds what that
// user cannot read. Whatever a pod could exchange for a link is never changed or removed as root.
import { type ExecFileException, execFile } from 'node:child_process';
import { constants, type Stats } from 'node:fs';
import { chmod, chown, lstat, mkdir, open, rmdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { removeTree } from './remove-tree.ts';

export interface PodUser {
  uid: number;
  gid: number;
  /** For messages. */
  name: string;
}

const OWNER_ONLY = 0o700;
/** May be passed through, and not listed. */
const PASSABLE = 0o711;
/** Longer than any list of files that is asked about. */
const CALL_LIMIT_MS = 60_000;

/** The platform's folder above those of pods. Made if it is missing. */
export async function provideParent(path: string, user: PodUser | undefined): Promise<void> {
  await mkdir(path, { recursive: true, mode: OWNER_ONLY });
  if (user) await chmod(path, PASSABLE);
}

/** A pod's own folder, with all that is in it. Made if it is missing; its parent has to be there. */
export async function provideOwn(path: string, user: PodUser | undefined): Promise<void> {
  await mkdir(path, { mode: OWNER_ONLY }).catch(ignoreExisting);
  if (user) await giveTree(path, user);
}

/** Does nothing if the folder is the user's already. @throws Error */
export async function giveTree(path: string, { gid, uid }: PodUser): Promise<void> {
  const before = await lstat(path);
  if (before.uid === uid && before.gid === gid) return;
  // The folder itself last: a call that was cut off is repeated. chown follows no links here.
  await run('chown', ['-hR', `${uid}:${gid}`, `${path}/.`]);
  await chown(path, uid, gid);
}

/** Those of the absolute paths, files to read and folders to enter, that are closed to the user. */
export async function findUnreadable(paths: readonly string[], user: PodUser): Promise<string[]> {
  const isUsable = 'if [ -d "$path" ]; then [ -x "$path" ]; else [ -r "$path" ]; fi';
  const script = `for path; do ${isUsable} || printf "%s\\0" "$path"; done`;
  const printed = await run('/bin/sh', ['-c', script, 'sh', ...paths], user);
  return printed.split('\0').filter(Boolean);
}

/**
 * Removes a folder whose content another user may change meanwhile, as that user. Root would follow a link
 * that takes the place of a folder between two calls. @throws Error if the user cannot remove all of it
 */
export async function removeOwn(path: string): Promise<void> {
  const entry = await readEntry(path);
  const parent = entry && (await readEntry(dirname(path)));
  if (!entry || !parent) return;
  if (process.geteuid?.() !== 0) return removeTree(path);
  if (parent.uid !== 0) {
    await sweepAs(parent, path);
    if (await readEntry(path)) throw new Error(`${path} could not be removed by its owner`);
  } else if (entry.isDirectory() && entry.uid !== 0) {
    await sweepAs(entry, path);
    // Its parent is the platform's: only root can take the empty folder out of it.
    await rmdir(path);
  } else await removeTree(path);
}

/** Undefined if it is not there. */
function readEntry(path: string): Promise<Stats | undefined> {
  return lstat(path).catch(() => undefined);
}

async function sweepAs({ gid, uid }: Pick<Stats, 'uid' | 'gid'>, path: string): Promise<void> {
  const sweep = 'cd "$1" && chmod -R u+rwX . 2>/dev/null; rm -rf "$1" 2>/dev/null || :';
  await run('/bin/sh', ['-c', sweep, 'sh', path], { uid, gid });
}

/** Gives a folder that its pod could replace. What has become no folder stays as it is. */
export async function giveFolder(path: string, { gid, uid }: PodUser): Promise<void> {
  const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;
  // A hard link to a file of root's would be given away by name.
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
