// Names and removes the folders for files of attempts. A worker process has one, with a folder for each of its threads.
// The name says which process owns it, so that a later worker can remove what a killed one has left.
import { readdirSync, readlinkSync } from 'node:fs';
import { lstat, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isAlive, readBootId, readProcess } from '../base/process/process-table.ts';

const PREFIX = 'millrace-attempts';

/** The process that owns a folder. */
export interface FolderOwner {
  pid: number;
  startTicks: string;
  /** Process IDs mean something only within one namespace, and one boot. */
  pidNamespace: string;
  bootId: string;
}

/** Path of a folder of this process; it does not exist yet. `tag`: see left-processes.ts. */
export function nameTempFolder(tag: string): string {
  return join(tmpdir(), [PREFIX, tag, ...describeOwner(findOwner())].join('.'));
}

/** Removes the folder of a process that has ended, by its tag. Never throws. */
export async function removeTempFolders(tag: string): Promise<void> {
  await removeWhere((name) => name.startsWith(`${PREFIX}.${tag}`));
}

/** Removes the folders that killed processes of this user have left in the system's temporary folder. Never throws. */
export async function removeAbandonedFolders(): Promise<void> {
  const here = findOwner();
  if (here) await removeWhere((name) => isAbandoned(name, here, isAlive));
}

/** Never throws: what cannot be removed stays. */
export async function removeFolder(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 3 }).catch(() => undefined);
}

/**
 * Whether the folder's owner is known to be dead. A folder of another process ID namespace or another boot may belong to
 * a living process of another container or machine.
 */
export function isAbandoned(
  name: string,
  here: Pick<FolderOwner, 'pidNamespace' | 'bootId'>,
  isAlive: (owner: FolderOwner) => boolean,
): boolean {
  const owner = readOwner(name);
  if (!owner || owner.pidNamespace !== here.pidNamespace) return false;
  return here.bootId.startsWith(owner.bootId) && !isAlive({ ...owner, bootId: here.bootId });
}

const BOOT_DIGITS = 8;

function describeOwner(owner: FolderOwner | undefined): string[] {
  if (!owner) return [];
  const { bootId, pid, pidNamespace, startTicks } = owner;
  return [`${pid}`, startTicks, pidNamespace, bootId.slice(0, BOOT_DIGITS)];
}

function readOwner(name: string): FolderOwner | undefined {
  const found = /^millrace-attempts\.[\w-]+\.(\d+)\.(\d+)\.(\d+)\.([0-9a-f]{8})$/.exec(name);
  const [, pid = '', startTicks = '', pidNamespace = '', bootId = ''] = found ?? [];
  return found ? { pid: Number(pid), startTicks, pidNamespace, bootId } : undefined;
}

/** Undefined on systems without /proc. */
function findOwner(): FolderOwner | undefined {
  try {
    const startTicks = readProcess(process.pid)?.startTicks;
    const pidNamespace = /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0];
    if (startTicks === undefined || pidNamespace === undefined) return undefined;
    return { pid: process.pid, startTicks, pidNamespace, bootId: readBootId() };
  } catch {
    return undefined;
  }
}

async function removeWhere(isWanted: (name: string) => boolean): Promise<void> {
  const parent = tmpdir();
  for (const name of listNames(parent).filter(isWanted)) {
    const path = join(parent, name);
    const stats = await lstat(path).catch(() => undefined);
    // Any user can create such a name.
    if (stats?.isDirectory() && stats.uid === process.getuid?.()) await removeFolder(path);
  }
}

function listNames(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
