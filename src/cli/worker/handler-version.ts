// Provides the handler of a version for `millrace worker --handler-version`: downloads, unpacks and installs it once, and
// keeps it in a cache for later processes. Processes may do so at the same time: the first complete folder stays.
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { Agent as HttpAgent, request as requestHttp } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { backoffMs } from '../../base/backoff.ts';
import { sleep, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { makeOwnFolder } from '../../base/make-folder.ts';
import { describeProxy, readProxies, toAgentProxy } from '../../base/net/outgoing-proxy.ts';
import { adviseTrust, describeRedirect, TRUST_ADVICE } from '../../base/net/request-hints.ts';
import { ARCHIVE_LIMITS } from '../../wire/archive-limits.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { ARCHIVE_HEADERS, FETCH_VERSION_ROUTES } from '../../wire/routes/routes.ts';
import { CommandError } from '../command.ts';
import { inheritEnvironment } from '../config.ts';
import { UsageError } from '../options.ts';
import { createTerminalLog } from '../terminal-log.ts';
import { planLink } from './platform-link.ts';
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
    import('../../archive/archive-paths.ts'),
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

/** The call is repeated if no byte arrives for this time, ms. */
const STALL_MS = 30_000;
const NOT_MODIFIED = 304;
const PACE = { baseMs: 500, maxMs: 10_000, jitter: 0.2 };
/** Bytes of a refusal that are read. */
const MAX_REFUSAL_BYTES = 65_536;

interface DownloadedVersion {
  /** Undefined: the cache has it. */
  archive: Uint8Array | undefined;
  /** Path of the handler in the archive. */
  entry: string;
  /** Of the archive, hex. */
  sha256: string;
}

interface Answer {
  status: number;
  headers: NodeJS.Dict<string | string[]>;
  body: Buffer;
}

interface DownloadTerms {
  log: Log;
  /** Hashes of the archives that the cache has for this version: the platform does not send these again. */
  kept: readonly string[];
}

/** @throws UsageError, CommandError if the platform refuses, or sends another archive than it says */
export async function downloadVersion(
  values: VersionFlags,
  { kept, log }: DownloadTerms,
): Promise<DownloadedVersion> {
  const { url, path } = findUrl(values);
  const proxy = findProxy(url);
  for (let failures = 1; ; failures++) {
    const answer = await ask({ url, proxy, values, kept }).catch(
      (error: unknown) => `${adviseTrust(String(error), TRUST_ADVICE)}${describeProxy(proxy)}`,
    );
    if (typeof answer !== 'string') {
      const { headers, status } = answer;
      const facts = { status, location: readText(headers['location']), url: url.href, path };
      const redirect = describeRedirect(facts);
      if (redirect !== undefined) throw new CommandError(redirect);
      if (!isPassing(answer)) return readAnswer(answer, values, kept);
    }
    const reason =
      typeof answer === 'string'
        ? answer
        : `the platform answers ${answer.status}${describeProxy(proxy)}`;
    const waitMs = backoffMs(failures, PACE);
    log.warn({ version: values.handlerVersion, reason, waitMs }, 'version not loaded, retrying');
    await sleep(systemClock, waitMs);
  }
}

/** @throws UsageError */
function findUrl(values: VersionFlags): { url: URL; path: string } {
  const { endpoint, handlerVersion, httpUrl, url } = values;
  const { carrier, tls } = planLink(values);
  if (carrier === 'grpc' && httpUrl === undefined) {
    throw new UsageError(
      '--handler-version over gRPC needs --http-url, the URL of the platform for HTTP: versions are downloaded from there',
    );
  }
  const [flag, given] = httpUrl === undefined ? ['--url', url] : ['--http-url', httpUrl];
  const base = URL.parse(given);
  if (!base || !/^https?:$/.test(base.protocol)) {
    throw new UsageError(`--handler-version needs an http or https ${flag}, got ${given}`);
  }
  // The key would be sent unencrypted although the user gave TLS files.
  if (tls && base.protocol === 'http:') {
    throw new UsageError(`--ca and --client-cert need TLS; ${flag} must be an https URL`);
  }
  const version = String(handlerVersion);
  const path = fillPath(FETCH_VERSION_ROUTES.fetchVersion, { endpoint, version });
  base.pathname = base.pathname.replace(/\/+$/, '') + path;
  return { url: base, path };
}

/** @throws UsageError */
function findProxy(url: URL): URL | undefined {
  try {
    return readProxies(inheritEnvironment({}))(url);
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function readText(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' ? header : undefined;
}

interface Question {
  url: URL;
  proxy: URL | undefined;
  values: WorkerFlags;
  kept: readonly string[];
}

function ask({ kept, proxy, url, values }: Question): Promise<Answer> {
  const { tls } = planLink(values);
  const isTls = url.protocol === 'https:';
  const send = isTls ? requestHttps : requestHttp;
  // Node limits the wait for the proxy's tunnel by the agent's time.
  const settings = { timeout: STALL_MS, ...toAgentProxy(proxy) };
  const agent = isTls ? new HttpsAgent(settings) : new HttpAgent(settings);
  const headers = {
    authorization: `Bearer ${values.key}`,
    ...(kept.length > 0 && { 'if-none-match': kept.map((hash) => `"${hash}"`).join(', ') }),
  };
  return new Promise((resolve, reject) => {
    const request = send(url, { headers, agent, ...tls }, (response) => {
      const { headers: answered, statusCode: status = 0 } = response;
      const maxBytes = status === 200 ? ARCHIVE_LIMITS.bytes : MAX_REFUSAL_BYTES;
      const parts: Buffer[] = [];
      let bytes = 0;
      response.on('data', (part: Buffer) => {
        bytes += part.length;
        if (bytes <= maxBytes) parts.push(part);
        else request.destroy(new Error(`the answer has more than ${maxBytes} bytes`));
      });
      response.on('error', reject);
      response.on('end', () => {
        if (response.complete) resolve({ status, headers: answered, body: Buffer.concat(parts) });
        else reject(new Error('the answer broke off'));
      });
    });
    request.setTimeout(STALL_MS, () => {
      request.destroy(new Error(`no byte arrived for ${STALL_MS / 1_000} s`));
    });
    request.on('error', reject);
    request.end();
  });
}

function isPassing({ status }: Answer): boolean {
  return status >= 500 || status === 429 || status === 408;
}

/** @throws CommandError */
function readAnswer(
  { body, headers, status }: Answer,
  { endpoint, handlerVersion }: WorkerFlags,
  kept: readonly string[],
): DownloadedVersion {
  const what = `version ${handlerVersion} of endpoint ${endpoint}`;
  const hash = headers[ARCHIVE_HEADERS.sha256.toLowerCase()];
  const entry = headers[ARCHIVE_HEADERS.entry.toLowerCase()];
  const isKept = status === NOT_MODIFIED && typeof hash === 'string' && kept.includes(hash);
  if (isKept && typeof entry === 'string') {
    return { archive: undefined, entry: decodeURIComponent(entry), sha256: hash };
  }
  if (status !== 200) {
    throw new CommandError(`the platform refuses ${what}: ${status} ${body.toString('utf8')}`);
  }
  const sha256 = createHash('sha256').update(body).digest('hex');
  if (typeof entry !== 'string' || hash !== sha256) {
    throw new CommandError(`${what} is damaged: its hash is not the one that the platform names`);
  }
  return { archive: body, entry: decodeURIComponent(entry), sha256 };
}
