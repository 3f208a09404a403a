// What a worker process may leave behind: processes that its handlers started, which would hold device memory or ports,
// and the folders for files of attempts. A tag identifies both; a later worker also removes what killed ones have left.
import { readdirSync, readlinkSync } from 'node:fs';
import { lstat, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  findByVariable,
  isAlive,
  readBootId,
  readProcess,
  readProcesses,
  signalProcess,
} from '../base/process/process-table.ts';
import { createRandomId } from '../base/random-id.ts';

/** Environment variable of a worker process and of all processes that its handlers start. */
export const TAG_VARIABLE = 'MILLRACE_PROCESS_TAG';

/** A process that forks during the search is found by the next pass. */
const MAX_PASSES = 5;

const PREFIX = 'millrace-attempts';

const BOOT_DIGITS = 8;

export function createTag(): string {
  return createRandomId();
}

/**
 * Kills every process with that tag except this one. Cannot find processes of other users or with a
 * replaced environment.
 */
export function endLeftProcesses(tag: string): void {
  // Other systems have no /proc.
  if (process.platform !== 'linux') return;
  for (let pass = 0; pass < MAX_PASSES; pass += 1) {
    const { found } = findByVariable(TAG_VARIABLE, tag, readProcesses());
    const left = found.filter(({ pid }) => pid !== process.pid);
    if (left.length === 0) return;
    for (const each of left) signalProcess(each, 'SIGKILL');
  }
}

/** The process that owns a folder. */
export interface FolderOwner {
  pid: number;
  startTicks: string;
  /** Process IDs mean something only within one namespace, and one boot. */
  pidNamespace: string;
  bootId: string;
}

/** Path of a folder of this process; it does not exist yet. */
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

/** Never throws: it leaves what it cannot remove. */
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
