// Downloads a version of the handler from the platform with the worker's key. Waits while the platform cannot be
// reached, as the worker does.
import { createHash } from 'node:crypto';
import { Agent as HttpAgent, request as requestHttp } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { backoffMs } from '../../base/backoff.ts';
import { sleep, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { describeProxy, readProxies, toAgentProxy } from '../../base/net/outgoing-proxy.ts';
import { adviseTrust, describeRedirect, TRUST_ADVICE } from '../../base/net/request-hints.ts';
import { ARCHIVE_LIMITS } from '../../wire/archive-limits.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { ARCHIVE_HEADERS, FETCH_VERSION_ROUTES } from '../../wire/routes/routes.ts';
import { CommandError } from '../command.ts';
import { inheritEnvironment } from '../config.ts';
import { UsageError } from '../options.ts';
import { planLink } from './platform-link.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** No byte for this long: the call is repeated, ms. */
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
  values: WorkerFlags & { handlerVersion: number },
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
function findUrl(values: WorkerFlags & { handlerVersion: number }): { url: URL; path: string } {
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
