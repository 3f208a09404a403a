// Downloads what a URL from a job names: bounded in bytes, time and redirects, to permitted
// addresses only.
import { NonRetryableError, RetryAfterError } from 'millrace';
import {
  type AddressRule,
  buildGuardedConnector,
  RefusedAddressError,
  type ResolveName,
  readRetryAfterMs,
} from 'millrace/outgoing';
import { Agent, type Dispatcher, request } from 'undici';
import { isTransient } from './retry-after.ts';

const REDIRECTS = new Set([301, 302, 303, 307, 308]);

export interface DownloadOptions {
  /** Name of the URL in errors, for example `input.url`. */
  name: string;
  maxBytes: number;
  /** For the whole download, redirects included. */
  timeoutMs: number;
  maxRedirects: number;
  /** Judges every address, that of each redirect too. */
  rule: AddressRule;
  signal: AbortSignal;
  resolve?: ResolveName;
}

/**
 * The body of a GET. @throws NonRetryableError where trying again cannot help: a bad URL, a refused
 * address, too many bytes or redirects, a 4xx. RetryAfterError if the server asked for a wait. An
 * ordinary Error for the rest. The signal's reason if that aborts.
 */
export async function download(url: string, options: DownloadOptions): Promise<Buffer> {
  const { name, timeoutMs, signal } = options;
  const timeout = AbortSignal.timeout(timeoutMs);
  const agent = new Agent({ connect: buildGuardedConnector(options) });
  let target = parseUrl(url, name);
  try {
    for (let hop = 0; hop <= options.maxRedirects; hop += 1) {
      const answer = await request(target, {
        dispatcher: agent,
        signal: AbortSignal.any([signal, timeout]),
        headers: { 'accept-encoding': 'identity', 'user-agent': 'millrace-handler' },
      });
      // The end of an unread body, such as a redirect's, does not matter.
      answer.body.on('error', () => {});
      const location = readLocation(answer);
      if (location === undefined) return await readBody(answer, describe(target, name), options);
      target = resolveRedirect(location, target, name);
    }
    throw new NonRetryableError(`${name}: more than ${options.maxRedirects} redirects`);
  } catch (error) {
    signal.throwIfAborted();
    if (timeout.aborted) {
      throw new Error(`${describe(target, name)}: not downloaded within ${timeoutMs} ms`);
    }
    throw explainFailure(error, describe(target, name));
  } finally {
    await agent.destroy();
  }
}

function parseUrl(text: string, name: string, base?: URL): URL {
  const url = URL.parse(text, base?.href);
  if (url === null) throw new NonRetryableError(`${name}: is not a URL`);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new NonRetryableError(`${name}: ${url.protocol} is refused, only http: and https: go`);
  }
  if (url.username !== '' || url.password !== '') {
    throw new NonRetryableError(`${name}: must not carry a user name or password`);
  }
  return url;
}

function resolveRedirect(location: string, from: URL, name: string): URL {
  return parseUrl(location, `${describe(from, name)}: its redirect`, from);
}

/** Without the query: that is where signed URLs keep their secret. */
function describe(url: URL, name: string): string {
  return `${name} (${url.origin}${url.pathname})`;
}

function readLocation({ statusCode, headers }: Dispatcher.ResponseData): string | undefined {
  const location = headers['location'];
  if (!REDIRECTS.has(statusCode) || location === undefined) return undefined;
  return Array.isArray(location) ? location[0] : location;
}

async function readBody(
  { statusCode, headers, body }: Dispatcher.ResponseData,
  subject: string,
  { maxBytes }: DownloadOptions,
): Promise<Buffer> {
  if (statusCode !== 200) throw explainStatus(statusCode, headers['retry-after'], subject);
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    throw new NonRetryableError(`${subject}: sent as ${encoding}, though that was not accepted`);
  }
  if (Number(headers['content-length']) > maxBytes) throw refuseSize(subject, maxBytes);
  const bytes = await collectBytes(body, maxBytes);
  if (bytes === undefined) throw refuseSize(subject, maxBytes);
  return bytes;
}

/** Undefined if the body is larger. */
export async function collectBytes(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
): Promise<Buffer | undefined> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > maxBytes) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces, bytes);
}

function refuseSize(subject: string, maxBytes: number): NonRetryableError {
  return new NonRetryableError(`${subject}: larger than ${maxBytes} bytes`);
}

function explainStatus(
  status: number,
  retryAfter: string | string[] | undefined,
  subject: string,
): Error {
  const message = `${subject}: the server answered ${status}`;
  if (!isTransient(status)) return new NonRetryableError(message);
  const waitMs = readRetryAfterMs(retryAfter, Date.now());
  return waitMs === undefined ? new Error(message) : new RetryAfterError(waitMs, message);
}

function explainFailure(error: unknown, subject: string): unknown {
  if (error instanceof RefusedAddressError) {
    return new NonRetryableError(`${subject}: ${error.message}`, { cause: error });
  }
  const isExplained = error instanceof NonRetryableError || error instanceof RetryAfterError;
  if (isExplained || !(error instanceof Error) || error.message.startsWith(subject)) return error;
  return new Error(`${subject}: ${error.message || error.name}`, { cause: error });
}
