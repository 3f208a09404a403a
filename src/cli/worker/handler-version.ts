// Provides the handler of a version for `millrace worker --handler-version`: downloads, unpacks and installs it once, and
// keeps it in a cache for later processes. Processes may do so at the same time: the first complete folder stays.
import { randomBytes } from 'node:crypto';
import {
  lstat,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { isDnsLabel } from '../../wire/dns-label.ts';
import { CommandError } from '../command.ts';
import { createTerminalLog } from '../terminal-log.ts';
import type { DownloadedVersion } from './version-download.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** Written last into a folder: its handler can be loaded. */
const MARK = 'version.json';
const FILES = 'files';
/** Prefix of folders that are not complete; no name of an endpoint begins with a dot. */
const UNFINISHED = '.new-';
/** An incomplete folder is left by a dead process after this time, ms: longer than any installation. */
const ABANDONED_MS = 7_200_000;
/** Versions of one cache; those that no worker has started for longest are removed. */
const KEPT = 5;
/** Digits of the archive's hash in the name of a folder. */
const HASH_DIGITS = 16;
/** Bits of a mode that let other users change the folder. */
const OTHERS_WRITE = 0o022;

type VersionFlags = WorkerFlags & { handlerVersion: number };

/** @returns the path of the handler module @throws UsageError, CommandError */
export async function provideVersion(values: VersionFlags): Promise<string> {
  const { endpoint, handlerVersion } = values;
  const cache = await openCache(values);
  const name = `${endpoint}-${handlerVersion}`;
  // On another platform, or later, a name may stand for another endpoint: only the archive tells.
  const fixed = isDnsLabel(endpoint) ? undefined : join(cache, name);
  const known = fixed && (await readMark(fixed));
  if (fixed && known !== undefined) return join(fixed, FILES, known);
  const log = createTerminalLog(values.logLevel);
  const { downloadVersion } = await import('./version-download.ts');
  const downloaded = await downloadVersion(values, log);
  const folder = fixed ?? join(cache, `${name}-${downloaded.sha256.slice(0, HASH_DIGITS)}`);
  if ((await readMark(folder)) === undefined) await make(folder, downloaded, values, log);
  await removeOld(cache, folder);
  if ((await readMark(folder)) !== undefined) return join(folder, FILES, downloaded.entry);
  throw new CommandError(`${folder} was removed while the worker started; start it again`);
}

/**
 * Creates the folder of the cache. In the state folder the cache outlives the worker; its name is not that of a worker.
 * @throws CommandError
 */
async function openCache({ stateDir, versionCache }: WorkerFlags): Promise<string> {
  const chosen = versionCache ?? (stateDir === undefined ? undefined : join(stateDir, '.versions'));
  const uid = process.getuid?.();
  const cache = chosen ?? join(tmpdir(), `millrace-versions-${uid ?? 'all'}`);
  await mkdir(cache, { recursive: true, mode: 0o700 });
  if (chosen !== undefined || uid === undefined) return cache;
  // Any user may write to the temporary folder, and the worker runs the code in the cache.
  const stats = await lstat(cache);
  const isOwn = stats.isDirectory() && stats.uid === uid && (stats.mode & OTHERS_WRITE) === 0;
  if (isOwn) return cache;
  throw new CommandError(
    `${cache} belongs to another user, or other users can write to it; remove it, or name another folder with --version-cache`,
  );
}

async function make(
  folder: string,
  downloaded: DownloadedVersion,
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
  { archive, entry }: DownloadedVersion,
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
    ...{ folder: files, temporary, timeoutMs: installTimeout * 1_000 },
    maxBytes: installLimit * 1_048_576,
    scripts: installScripts ? 'run' : 'ignore',
  });
  await rm(temporary, { recursive: true, force: true });
  await writeFile(join(folder, MARK), JSON.stringify({ entry }), { flush: true });
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

/** Notes the use too. Undefined if the folder is not complete. */
async function readMark(folder: string): Promise<string | undefined> {
  const path = join(folder, MARK);
  try {
    const mark: unknown = JSON.parse(await readFile(path, 'utf8'));
    const now = new Date();
    await utimes(path, now, now).catch(() => {});
    const isMark = typeof mark === 'object' && mark !== null && 'entry' in mark;
    return isMark && typeof mark.entry === 'string' ? mark.entry : undefined;
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
