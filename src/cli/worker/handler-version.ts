// Provides the handler of a version for `millrace worker --handler-version`: downloads, unpacks and installs it once, and
// keeps it in a cache for later processes. Processes may do so at the same time: the first complete folder stays.
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { makeOwnFolder } from '../../base/make-folder.ts';
import { CommandError } from '../command.ts';
import { createTerminalLog } from '../terminal-log.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** Written last into a folder: its handler can be loaded. */
const MARK = 'version.json';
const FILES = 'files';
const SHA256 = /^[0-9a-f]{64}$/;
/** Prefix of folders that are not complete; no name of an endpoint begins with a dot. */
const UNFINISHED = '.new-';
/** An incomplete folder is left by a dead process after this time, ms: longer than any installation. */
const ABANDONED_MS = 7_200_000;
/** Versions of one cache; those that no worker has started for longest are removed. */
const KEPT = 5;
/** Digits of the archive's hash in the name of a folder. */
const HASH_DIGITS = 16;

type VersionFlags = WorkerFlags & { handlerVersion: number };

/** @returns the path of the handler module @throws UsageError, CommandError */
export async function provideVersion(values: VersionFlags): Promise<string> {
  const { endpoint, handlerVersion } = values;
  const cache = await openCache(values);
  const name = `${endpoint}-${handlerVersion}`;
  const log = createTerminalLog(values.logLevel);
  const { downloadVersion } = await import('./version-download.ts');
  // Another archive may have the number by now, after the platform was restored from a backup; and a name may stand
  // for another endpoint. Only the platform can tell.
  const { archive, entry, sha256 } = await downloadVersion(values, {
    log,
    kept: await listKept(cache, name),
  });
  const folder = join(cache, nameFolder(name, sha256));
  if (archive && (await readMark(folder)) === undefined) {
    await make(folder, { archive, sha256 }, values, log);
  }
  await removeOld(cache, folder);
  if ((await noteUse(folder)) !== undefined) return join(folder, FILES, entry);
  throw new CommandError(`${folder} was removed while the worker started; start it again`);
}

/**
 * Creates the folder of the cache. In the state folder the cache outlives the worker; its name is not that of a worker.
 * @throws CommandError
 */
async function openCache({ stateDir, versionCache }: WorkerFlags): Promise<string> {
  const chosen = versionCache ?? (stateDir === undefined ? undefined : join(stateDir, '.versions'));
  if (chosen !== undefined) {
    await mkdir(chosen, { recursive: true, mode: 0o700 });
    return chosen;
  }
  // Any user may write to the temporary folder, and the worker runs the code in the cache.
  const cache = join(tmpdir(), `millrace-versions-${process.getuid?.() ?? 'all'}`);
  try {
    makeOwnFolder(cache);
    return cache;
  } catch (error) {
    const advice = 'remove it, or name another folder with --version-cache';
    throw new CommandError(`${error instanceof Error ? error.message : error}; ${advice}`);
  }
}

function nameFolder(name: string, sha256: string): string {
  return `${name}-${sha256.slice(0, HASH_DIGITS)}`;
}

/** Hashes of the archives whose folders are complete: one, unless the number has stood for several. */
async function listKept(cache: string, name: string): Promise<string[]> {
  const folders = (await readdir(cache)).filter((each) => each.startsWith(`${name}-`));
  const kept: string[] = [];
  for (const folder of folders) {
    const sha256 = await readMark(join(cache, folder));
    // Names of endpoints may end with a number too.
    if (sha256 !== undefined && folder === nameFolder(name, sha256)) kept.push(sha256);
  }
  return kept;
}

interface Download {
  archive: Uint8Array;
  sha256: string;
}

async function make(
  folder: string,
  downloaded: Download,
  values: VersionFlags,
  log: Log,
): Promise<void> {
  const made = join(dirname(folder), `${UNFINISHED}${randomBytes(8).toString('hex')}`);
  await mkdir(made);
  try {
    const hasInstalled = await prepare(made, downloaded, values);
    log.info({ version: values.handlerVersion, hasInstalled }, 'version installed');
    await publish(made, folder);
  } finally {
    await rm(made, { recursive: true, force: true });
  }
}

/** @returns whether npm ran */
async function prepare(
  folder: string,
  { archive, sha256 }: Download,
  values: VersionFlags,
): Promise<boolean> {
  const [{ unpackArchive }, { ArchiveError }, install] = await Promise.all([
    import('../../archive/unpack.ts'),
    import('../../archive/archive-error.ts'),
    import('./version-install.ts'),
  ]);
  const { handlerVersion: version, installLimit, installScripts, installTimeout } = values;
  const files = join(folder, FILES);
  await unpackArchive(archive, files).catch((error: unknown) => {
    if (!(error instanceof ArchiveError)) throw error;
    throw new CommandError(`version ${version} cannot be unpacked: ${error.message}`);
  });
  await install.linkOwnPackages(folder);
  const temporary = join(folder, 'temporary');
  const hasInstalled = await install.installDependencies({
    folder: files,
    temporary,
    timeoutMs: installTimeout * 1_000,
    maxBytes: installLimit * 1_048_576,
    scripts: installScripts ? 'run' : 'ignore',
  });
  await rm(temporary, { recursive: true, force: true });
  await writeFile(join(folder, MARK), JSON.stringify({ sha256 }), { flush: true });
  return hasInstalled;
}

/** If another process was faster, its folder stays. */
async function publish(made: string, folder: string): Promise<void> {
  try {
    await rename(made, folder);
  } catch (error) {
    if ((await readMark(folder)) === undefined) throw error;
  }
}

/** As `readMark`; the version then counts as used now. */
async function noteUse(folder: string): Promise<string | undefined> {
  const now = new Date();
  await utimes(join(folder, MARK), now, now).catch(() => {});
  return readMark(folder);
}

/** Hash of the archive in the folder; undefined if the folder is not complete. */
async function readMark(folder: string): Promise<string | undefined> {
  try {
    const mark: unknown = JSON.parse(await readFile(join(folder, MARK), 'utf8'));
    const isMark = typeof mark === 'object' && mark !== null && 'sha256' in mark;
    const sha256 = isMark ? mark.sha256 : undefined;
    return typeof sha256 === 'string' && SHA256.test(sha256) ? sha256 : undefined;
  } catch {
    return undefined;
  }
}

/** The caller's folder stays. What cannot be removed stays until the next version. */
async function removeOld(cache: string, own: string): Promise<void> {
  const names = await readdir(cache);
  const folders = await Promise.all(
    names.map(async (name) => {
      const path = join(cache, name);
      const isUnfinished = name.startsWith(UNFINISHED);
      const stats = await stat(isUnfinished ? path : join(path, MARK)).catch(() => undefined);
      return { path, isUnfinished, usedAt: stats?.mtimeMs ?? 0 };
    }),
  );
  const complete = folders
    .filter(({ isUnfinished, path }) => !isUnfinished && path !== own)
    .toSorted((a, b) => b.usedAt - a.usedAt);
  const abandoned = folders.filter(
    ({ isUnfinished, usedAt }) => isUnfinished && usedAt < Date.now() - ABANDONED_MS,
  );
  for (const { path } of [...complete.slice(KEPT - 1), ...abandoned]) {
    await rm(path, { recursive: true, force: true }).catch(() => {});
  }
}
