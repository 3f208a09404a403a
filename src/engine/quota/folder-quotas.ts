// Limits how much a folder may hold, with a project quota of its file system (ext4 or xfs) where this machine gives one.
// Needs root, and the programs chattr, lsattr, setquota and repquota.
import { execFile } from 'node:child_process';
import { access, opendir, readFile, realpath } from 'node:fs/promises';
import { findMount, findQuotaFault } from './mount-table.ts';
import { chooseProject, type ProjectUse, readProject, readReport } from './project-report.ts';
import { MOUNTS, SEARCH_PATH } from './quota-programs.ts';

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
   * Gives the folder at least this limit; a larger one stays. The folder has to be empty when it gets its first
   * limit: files that exist already would not count. Never rejects.
   */
  limit(path: string, bytes: number): Promise<QuotaOutcome> {
    return this.#inTurn(async () => {
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
    const limited = await this.#inTurn(() => findLimited(path)).catch(() => undefined);
    await remove();
    if (!limited || (await isThere(path))) return;
    // A limit without a folder harms nobody.
    await setLimit(limited, 0).catch(() => {});
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
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
