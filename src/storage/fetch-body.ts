// Requests a URL that a job names, with bounds for time and redirects, at permitted addresses only. The caller reads
// the body and limits its bytes.
import type { Dispatcher } from 'undici';
import { readRetryAfterMs } from '../base/backoff.ts';
import { OutgoingAgents } from '../base/net/outgoing-agents.ts';
import { type ChooseProxy, describeProxy, readProxies } from '../base/net/outgoing-proxy.ts';
import {
  type AddressRule,
  RefusedAddressError,
  type ResolveName,
} from '../base/net/public-address.ts';
import { loadUndici } from '../base/net/undici.ts';
import { NonRetryableError, RetryAfterError } from '../handler/thrown.ts';

const REDIRECTS = new Set([301, 302, 303, 307, 308]);

export interface FetchOptions {
  /** Name of the URL in errors, for example `input.url`. */
  name: string;
  /** For the whole download, redirects included. */
  timeoutMs: number;
  maxRedirects: number;
  /** Judges every address, that of each redirect too. */
  rule: AddressRule;
  signal: AbortSignal;
  resolve?: ResolveName | undefined;
  /** Default: the variables of the worker. */
  chooseProxy?: ChooseProxy;
}

/** An answer with status 200. */
export interface FetchedBody {
  body: AsyncIterable<Uint8Array>;
  /** URL of the last request. */
  url: URL;
  headers: Dispatcher.ResponseData['headers'];
  /** Name of the URL in errors: without the query, which may be secret. */
  subject: string;
}

/**
 * The result of `read` for the body of a GET. @throws NonRetryableError where trying again cannot help: a bad URL, a
 * refused address, too many redirects, a 4xx. RetryAfterError if the server asked for a wait. An ordinary Error for the
 * rest. The signal's reason if that aborts.
 */
export async function fetchBody<T>(
  url: string,
  options: FetchOptions,
  read: (fetched: FetchedBody) => Promise<T>,
): Promise<T> {
  const { name, timeoutMs, signal } = options;
  signal.throwIfAborted();
  const timeout = AbortSignal.timeout(timeoutMs);
  const { request } = loadUndici();
  // biome-ignore lint/style/noProcessEnv: the variables of the worker, as handlers see them.
  const { chooseProxy = readProxies(process.env) } = options;
  const agents = new OutgoingAgents({ chooseProxy, guard: options });
  let target = parseUrl(url, name);
  try {
    for (let hop = 0; hop <= options.maxRedirects; hop += 1) {
      const answer = await request(target, {
        dispatcher: await agents.open(target),
        signal: AbortSignal.any([signal, timeout]),
        headers: { 'accept-encoding': 'identity', 'user-agent': 'millrace-handler' },
      });
      // The end of an unread body, such as a redirect's, does not matter.
      answer.body.on('error', () => {});
      const location = readLocation(answer);
      if (location === undefined) return await read(accept(answer, target, name));
      target = resolveRedirect(location, target, name);
    }
    throw new NonRetryableError(`${name}: more than ${options.maxRedirects} redirects`);
  } catch (error) {
    signal.throwIfAborted();
    if (timeout.aborted) {
      throw new Error(`${describe(target, name)}: not downloaded within ${timeoutMs} ms`);
    }
    throw explainFailure(error, describe(target, name), describeProxy(chooseProxy(target)));
  } finally {
    await agents.destroy();
  }
}

function parseUrl(text: string, name: string, base?: URL): URL {
  const url = URL.parse(text, base?.href);
  if (url === null) throw new NonRetryableError(`${name}: is not a URL`);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new NonRetryableError(`${name}: ${url.protocol} is refused; use http: or https:`);
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

function accept(
  { statusCode, headers, body }: Dispatcher.ResponseData,
  url: URL,
  name: string,
): FetchedBody {
  const subject = describe(url, name);
  if (statusCode !== 200) throw explainStatus(statusCode, headers['retry-after'], subject);
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    throw new NonRetryableError(
      `${subject}: has the Content-Encoding ${encoding}; the server must send identity`,
    );
  }
  return { body, url, headers, subject };
}

/** Answers after which the same request may succeed later. */
export function isTransient(status: number): boolean {
  return status >= 500 || status === 408 || status === 425 || status === 429;
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

function explainFailure(error: unknown, subject: string, via: string): unknown {
  if (error instanceof RefusedAddressError) {
    return new NonRetryableError(`${subject}: ${error.message}`, { cause: error });
  }
  const isExplained = error instanceof NonRetryableError || error instanceof RetryAfterError;
  if (isExplained || !(error instanceof Error) || error.message.startsWith(subject)) return error;
  return new Error(`${subject}: ${error.message || error.name}${via}`, { cause: error });
}
