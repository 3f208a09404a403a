// Provides the handler of a version for `millrace worker --handler-version`: downloads, unpacks and installs it once, and
// keeps it in a cache for later processes. Processes may do so at the same time: the first complete folder stays.
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { CommandError } from '../command.ts';
import { createTerminalLog } from '../terminal-log.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** Written last into a folder: its handler can be loaded. */
const MARK = 'version.json';
const FILES = 'files';
/** Prefix of folders that are not complete. */
const UNFINISHED = 'new-';
/** An incomplete folder is left by a dead process after this time, ms: longer than any installation. */
const ABANDONED_MS = 7_200_000;
/** Versions of one cache; those that no worker has started for longest are removed. */
const KEPT = 5;

type VersionFlags = WorkerFlags & { handlerVersion: number };

/** @returns the path of the handler module @throws UsageError, CommandError */
export async function provideVersion(values: VersionFlags): Promise<string> {
  const { endpoint, handlerVersion } = values;
  const cache = findCache(values);
  const folder = join(cache, `${endpoint}-${handlerVersion}`);
  const known = await readMark(folder);
  if (known !== undefined) return join(folder, FILES, known);
  const log = createTerminalLog(values.logLevel);
  await mkdir(cache, { recursive: true, mode: 0o700 });
  const made = join(cache, `${UNFINISHED}${randomBytes(8).toString('hex')}`);
  await mkdir(made);
  try {
    await prepare(made, values, log);
    await publish(made, folder);
  } finally {
    await rm(made, { recursive: true, force: true });
  }
  await removeOld(cache, folder);
  const entry = await readMark(folder);
  if (entry !== undefined) return join(folder, FILES, entry);
  throw new CommandError(`${folder} was removed while the worker started; start it again`);
}

/** In the state folder the cache outlives the worker; its name is not that of a worker. */
function findCache({ stateDir, versionCache }: WorkerFlags): string {
  if (versionCache !== undefined) return versionCache;
  return stateDir === undefined ? join(tmpdir(), 'millrace-versions') : join(stateDir, '.versions');
}

async function prepare(folder: string, values: VersionFlags, log: Log): Promise<void> {
  const [{ downloadVersion }, { unpackArchive }, { ArchiveError }, install] = await Promise.all([
    import('./version-download.ts'),
    import('../../archive/unpack.ts'),
    import('../../archive/archive-error.ts'),
    import('./version-install.ts'),
  ]);
  const { handlerVersion: version, installLimit, installScripts, installTimeout } = values;
  const { archive, entry } = await downloadVersion(values, log);
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
  log.info({ version, hasInstalled }, 'version installed');
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
