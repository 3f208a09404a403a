// Limits how much a folder may hold, with a project quota of its file system (ext4 or xfs) where this machine gives one.
// Needs root, and the programs chattr, lsattr, setquota and repquota.
import { execFile, execFileSync } from 'node:child_process';
import { hash } from 'node:crypto';
import { accessSync, readFileSync, realpathSync } from 'node:fs';
import { access, opendir, readFile, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';

const BYTES_PER_KB = 1_024;
/** Limit of one call of a program, ms. */
const CALL_LIMIT_MS = 30_000;
/** A report has a line of about 60 bytes for each project of the file system. */
const MAX_OUTPUT_BYTES = 16_777_216;

/** `enforced`: writes beyond the limit fail with ENOSPC. `none`: the folder can grow; `why` is for people. */
export type QuotaOutcome = { kind: 'enforced' } | { kind: 'none'; why: string };

/** Why a quota cannot be set. */
class QuotaFault extends Error {
  override readonly name = 'QuotaFault';
}

export class FolderQuotas {
  /** Two folders must not choose the same project. */
  #last: Promise<unknown> = Promise.resolve();

  /**
   * Gives the folder at least this limit; a larger one stays. The folder must be empty when it gets its first
   * limit: files that exist already would not count. Never rejects.
   */
  limit(path: string, bytes: number): Promise<QuotaOutcome> {
    return this.#exclusively(async () => {
      try {
        await limitFolder(await realpath(path), bytes);
        return { kind: 'enforced' };
      } catch (error) {
        return { kind: 'none', why: error instanceof Error ? error.message : String(error) };
      }
    });
  }

  /** Removes the folder with `remove`, then forgets its limit if the folder is gone. @throws the error of `remove` */
  async remove(path: string, remove: () => Promise<void>): Promise<void> {
    const limited = await this.#exclusively(() => findLimited(path)).catch(() => undefined);
    await remove();
    if (!limited || (await isThere(path))) return;
    // A limit without a folder harms nobody.
    await setLimit(limited, 0).catch(() => {});
  }

  #exclusively<T>(act: () => Promise<T>): Promise<T> {
    const done = this.#last.then(act);
    this.#last = done.catch(() => {});
    return done;
  }
}

function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** Reads one entry: a pod may have filled its volume with millions of files. */
async function isEmpty(path: string): Promise<boolean> {
  const folder = await opendir(path, { bufferSize: 1 });
  try {
    return (await folder.read()) === null;
  } finally {
    await folder.close();
  }
}

interface LimitedFolder {
  project: number;
  mountPoint: string;
}

async function limitFolder(path: string, bytes: number): Promise<void> {
  const mountPoint = await findEnforcing(path);
  const found = readProject(await call('lsattr', ['-pd', path]));
  const projects = await listProjects(mountPoint);
  if (found !== undefined) {
    const { limitBytes } = projects.get(found) ?? { limitBytes: 0 };
    if (limitBytes < bytes) await setLimit({ project: found, mountPoint }, bytes);
    return;
  }
  if (!(await isEmpty(path))) {
    throw new QuotaFault(`the folder ${path} had files before it could get a quota`);
  }
  const project = chooseProject(path, projects);
  // The limit first: a folder of a project always has one.
  await setLimit({ project, mountPoint }, bytes);
  // P: folders and files below belong to the same project.
  await call('chattr', ['+P', '-p', `${project}`, path]);
}

/** Undefined if it has no limit of the platform. @throws QuotaFault */
async function findLimited(given: string): Promise<LimitedFolder | undefined> {
  const path = await realpath(given);
  const mountPoint = await findEnforcing(path);
  const project = readProject(await call('lsattr', ['-pd', path]));
  return project === undefined ? undefined : { project, mountPoint };
}

/** @throws QuotaFault */
async function findEnforcing(path: string): Promise<string> {
  const mount = findMount(await readFile(MOUNTS, 'utf8').catch(() => ''), path);
  if (!mount) throw new QuotaFault('project quotas need Linux');
  const fault = findQuotaFault(mount);
  if (fault !== undefined) throw new QuotaFault(fault);
  return mount.mountPoint;
}

async function listProjects(mountPoint: string): Promise<Map<number, ProjectUse>> {
  return readReport(await call('repquota', ['-P', '-n', '-O', 'csv', mountPoint]));
}

/** 0: no limit. @throws QuotaFault */
async function setLimit({ mountPoint, project }: LimitedFolder, bytes: number): Promise<void> {
  const kilobytes = Math.ceil(bytes / BYTES_PER_KB);
  await call('setquota', ['-P', `${project}`, '0', `${kilobytes}`, '0', '0', mountPoint]);
}

/** Resolves with its output. @throws QuotaFault with the first line of its complaint */
function call(program: string, args: readonly string[]): Promise<string> {
  const env = { PATH: SEARCH_PATH, LC_ALL: 'C' };
  const options = { cwd: '/', env, timeout: CALL_LIMIT_MS, maxBuffer: MAX_OUTPUT_BYTES };
  return new Promise((resolve, reject) => {
    execFile(program, [...args], options, (error, stdout, stderr) => {
      if (!error) return resolve(stdout);
      if (error.code === 'ENOENT')
        return reject(new QuotaFault(`the program ${program} is missing`));
      const [complaint = ''] = stderr.trim().split('\n');
      reject(new QuotaFault(complaint === '' ? error.message : complaint));
    });
  });
}

const PROGRAMS = ['chattr', 'lsattr', 'setquota', 'repquota'];
/** Limit of the report, ms. */
const REPORT_LIMIT_MS = 5_000;

/**
 * Whether this machine can limit what a folder may hold, before the folder exists. `path`: absolute; folders above it may
 * be missing too. Never throws.
 */
export function canLimitFolder(path: string, mounts = MOUNTS): boolean {
  if (process.getuid?.() !== 0) return false;
  try {
    const mount = findMount(readFileSync(mounts, 'utf8'), resolveExisting(path));
    if (!mount || findQuotaFault(mount) !== undefined) return false;
    if (!PROGRAMS.every(isInstalled)) return false;
    // The mount's options do not tell whether this process may use quotas; in a container it may not.
    execFileSync('repquota', ['-P', '-n', '-O', 'csv', mount.mountPoint], {
      cwd: '/',
      env: { PATH: SEARCH_PATH, LC_ALL: 'C' },
      stdio: 'ignore',
      timeout: REPORT_LIMIT_MS,
      maxBuffer: MAX_OUTPUT_BYTES,
    });
    return true;
  } catch {
    return false;
  }
}

function resolveExisting(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : resolveExisting(parent);
  }
}

function isInstalled(program: string): boolean {
  return SEARCH_PATH.split(':').some((folder) => {
    try {
      accessSync(join(folder, program));
      return true;
    } catch {
      return false;
    }
  });
}

/** Projects of folders of the platform: Docker and operators count up from 1. */
export const FIRST_PROJECT = 1_073_741_824;
const PROJECTS = 1_073_741_824;

interface ProjectUse {
  usedBytes: number;
  /** 0: no limit. */
  limitBytes: number;
}

/** `report`: output of `repquota -P -n -O csv`. By project ID. */
export function readReport(report: string): Map<number, ProjectUse> {
  const projects = new Map<number, ProjectUse>();
  for (const line of report.split('\n')) {
    const [name = '', , , used, , limit] = line.split(',');
    const id = /^#(\d+)$/.exec(name)?.[1];
    if (id === undefined) continue;
    const toBytes = (kilobytes: string | undefined) => Number(kilobytes ?? 0) * BYTES_PER_KB;
    projects.set(Number(id), { usedBytes: toBytes(used), limitBytes: toBytes(limit) });
  }
  return projects;
}

/** `listing`: output of `lsattr -pd`. Undefined if the folder has no project of the platform. */
export function readProject(listing: string): number | undefined {
  const id = Number(/^\s*(\d+)\s/.exec(listing)?.[1] ?? 0);
  return isOwn(id) ? id : undefined;
}

/** The same folder gets the same one, unless another folder has it. */
export function chooseProject(path: string, taken: { has(id: number): boolean }): number {
  const start = Number.parseInt(hash('sha256', path, 'hex').slice(0, 12), 16) % PROJECTS;
  for (let step = 0; ; step += 1) {
    const id = FIRST_PROJECT + ((start + step) % PROJECTS);
    if (!taken.has(id)) return id;
  }
}

function isOwn(id: number): boolean {
  return id >= FIRST_PROJECT && id < FIRST_PROJECT + PROJECTS;
}

interface Mount {
  mountPoint: string;
  /** `ext4`, `xfs`, `overlay`, … */
  type: string;
  options: readonly string[];
}

/** Options of a mount whose project quotas are enforced; xfs knows both. */
const ENFORCING = ['prjquota', 'pquota'];
const TYPES = ['ext4', 'xfs'];

/** `table`: content of /proc/self/mountinfo. `path`: absolute, without links. Undefined if no mount has it. */
export function findMount(table: string, path: string): Mount | undefined {
  let found: Mount | undefined;
  for (const line of table.split('\n')) {
    const mount = readLine(line);
    // A later mount on the same path hides the earlier one.
    const isNearer = mount && mount.mountPoint.length >= (found?.mountPoint.length ?? 0);
    if (isNearer && isWithin(path, mount.mountPoint)) found = mount;
  }
  return found;
}

/** Undefined if the mount enforces project quotas. */
export function findQuotaFault({ mountPoint, options, type }: Mount): string | undefined {
  if (!TYPES.includes(type)) {
    return `the file system ${mountPoint} is ${type}; project quotas need ext4 or xfs`;
  }
  if (options.some((option) => ENFORCING.includes(option))) return undefined;
  return `the file system ${mountPoint} (${type}) is not mounted with prjquota`;
}

/** `36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/sda rw,prjquota`: the list of tags ends with `-`. */
function readLine(line: string): Mount | undefined {
  const words = line.split(' ');
  const end = words.indexOf('-', 6);
  const [mountPoint, type, options] = [words[4], words[end + 1], words[end + 3]];
  if (end < 0 || mountPoint === undefined || type === undefined) return undefined;
  return { mountPoint: decode(mountPoint), type, options: (options ?? '').split(',') };
}

/** A blank is `\040`. */
function decode(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_all, code: string) =>
    String.fromCharCode(Number.parseInt(code, 8)),
  );
}

function isWithin(path: string, folder: string): boolean {
  return folder === '/' || path === folder || path.startsWith(`${folder}/`);
}

const MOUNTS = '/proc/self/mountinfo';
/** setquota and repquota are not on the PATH of each user. */
const SEARCH_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
