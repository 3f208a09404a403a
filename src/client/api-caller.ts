// Makes one call to the platform: sends the request, reads the problem of a refusal, and retries
// over outages.

import { cleanKey } from '../base/api-key.ts';
import { backoffMs } from '../base/backoff.ts';
import { sleep, systemClock } from '../base/clock.ts';
import { adviseTrust, describeRedirect, hintAtScheme } from '../base/net/request-hints.ts';
import type { Problem } from '../wire/problem.ts';
import { fillPath, type PathParameters, type Route } from '../wire/routes/route.ts';

export interface ApiCallerOptions {
  /** URL of the platform, for example `http://127.0.0.1:8000`; a path is a prefix of all routes. */
  url: string;
  /** API key. Only `millrace dev` on the same machine answers without one. */
  key?: string | undefined;
  /**
   * Most retries of a call without an answer, or with 503 or 429 and a wait of up to a minute.
   * Default 5.
   */
  repeats?: number;
  /** Default: the global `fetch`. */
  fetch?: typeof fetch;
}

interface Content {
  bytes: Uint8Array;
  type: string;
  /** Called with the number of bytes that the connection has taken so far; a retry begins again. */
  onSent?: ((bytes: number) => void) | undefined;
}

/** A list is sent as several parameters of the name. */
type QueryValue = string | number | readonly string[] | undefined;

export interface ApiCall {
  method?: Route['method'];
  path: string;
  query?: Readonly<Record<string, QueryValue>>;
  /** Body, sent as JSON. */
  body?: unknown;
  /** Body that is JSON text already; instead of `body`. */
  text?: string;
  /** Body that is not JSON; instead of `body`. */
  content?: Content;
  headers?: Readonly<Record<string, string>> | undefined;
  /** The call is idempotent, so it may be retried. Default true. */
  repeatable?: boolean;
  /** Most retries of this call. Default: that of the client. */
  repeats?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Returns method and path of a call. */
export function callOf<Path extends string>(
  route: Route<Path>,
  parameters: PathParameters<Path>,
): Pick<ApiCall, 'method' | 'path'> {
  return { method: route.method, path: fillPath(route, parameters) };
}

/** The platform refused the call; `problem` is its answer. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly problem: Problem;
  /** Wait before a retry that the platform requests, ms. */
  readonly retryAfterMs: number | undefined;
  /** URL of the platform, and whether the call had a key; undefined if another call carried the refusal. */
  readonly sent: { url: string; hasKey: boolean } | undefined;

  constructor(
    problem: Problem,
    retryAfterMs: number | undefined,
    sent?: { url: string; hasKey: boolean },
  ) {
    super(`${problem.title} (${problem.status}): ${problem.detail}`);
    this.problem = problem;
    this.retryAfterMs = retryAfterMs;
    this.sent = sent;
  }

  get status(): number {
    return this.problem.status;
  }
}

/** No answer arrived, or one that is not from this platform. */
export class UnreachableError extends Error {
  override readonly name = 'UnreachableError';
}

/** For programs of Node, the command line among them. */
const TRUST_ADVICE = 'set NODE_EXTRA_CA_CERTS=FILE';

/** A retry would be redirected too. */
class RedirectError extends UnreachableError {}

/** If the platform requests a longer wait, the call rejects instead of waiting, ms. */
const MOST_WAIT_MS = 60_000;

/** Bytes of one part of a body whose progress is reported. */
const SENT_AT_ONCE = 65_536;

/** Most retries, unless the client's options say otherwise. */
const REPEATS = 5;

const REPEAT_PACE = { baseMs: 200, maxMs: 5_000, jitter: 0.2 };

interface FailedCall {
  failures: number;
  /** It may be sent again although nobody knows whether it was carried out. */
  isRepeatable: boolean;
  repeats?: number | undefined;
}

export class ApiCaller {
  readonly #base: string;
  readonly #key: string | undefined;
  readonly #options: ApiCallerOptions;

  /** @throws TypeError if the URL is not one of HTTP, or the key has a character that no key has */
  constructor(options: ApiCallerOptions) {
    const url = new URL(options.url);
    if (url.protocol !== 'http:' && url.protocol !== 'https:') {
      throw new TypeError(`the URL must be http or https: ${options.url}`);
    }
    this.#base = url.origin + url.pathname.replace(/\/+$/, '');
    this.#key = options.key && cleanKey(options.key);
    this.#options = options;
  }

  /** Returns the answer's JSON, typed as the route's answer. @throws ApiError, UnreachableError */
  async json<T>(call: ApiCall): Promise<T> {
    const { body } = await this.answer(call);
    return parseAnswer<T>(body);
  }

  /** Returns the bytes of an answer that is not JSON. @throws ApiError, UnreachableError */
  async bytes(call: ApiCall): Promise<Uint8Array> {
    return (await this.#repeat(call)).body;
  }

  /** @throws ApiError, UnreachableError, and the signal's reason after an abort */
  async answer(call: ApiCall): Promise<{ body: string; headers: Headers }> {
    const { body, headers } = await this.#repeat(call);
    return { body: decode(body), headers };
  }

  /** Wait before the next retry of a call that failed `failures` times, ms; undefined if it must not be retried. */
  retryWaitMs(
    error: unknown,
    { failures, isRepeatable, repeats = this.#options.repeats ?? REPEATS }: FailedCall,
  ): number | undefined {
    if (failures > repeats || !isPassing(error, isRepeatable)) return undefined;
    const asked = error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0;
    return Math.max(asked, backoffMs(failures, REPEAT_PACE));
  }

  async #repeat(call: ApiCall): Promise<RawAnswer> {
    const { repeatable: isRepeatable = true, repeats, signal } = call;
    for (let failures = 1; ; failures++) {
      try {
        return await this.#tryOnce(call);
      } catch (error) {
        signal?.throwIfAborted();
        const waitMs = this.retryWaitMs(error, { failures, isRepeatable, repeats });
        if (waitMs === undefined) throw error;
        await sleep(systemClock, waitMs, signal);
        signal?.throwIfAborted();
      }
    }
  }

  /** A body that comes little by little; the call is not repeated. @throws ApiError, UnreachableError */
  async open(call: ApiCall): Promise<ReadableStream<Uint8Array>> {
    const { body, response } = await this.#send(call, { isEndless: true });
    if (!response.ok) throw this.#readRefusal(response, decode(body));
    return response.body ?? new ReadableStream({ start: (controller) => controller.close() });
  }

  async #tryOnce(call: ApiCall): Promise<RawAnswer> {
    const { body, response } = await this.#send(call, { isEndless: false });
    if (response.ok) return { body, headers: response.headers };
    throw this.#readRefusal(response, decode(body));
  }

  /** @throws RedirectError */
  async #refuseRedirect({ body, headers, status }: Response, path: string): Promise<void> {
    const location = headers.get('location');
    const redirect = describeRedirect({ status, location, url: this.#base + path, path });
    if (redirect === undefined) return;
    await body?.cancel();
    throw new RedirectError(redirect);
  }

  /** `isEndless`: the body of a success is left to the caller. @throws UnreachableError */
  async #send(
    call: ApiCall,
    { isEndless }: { isEndless: boolean },
  ): Promise<{ response: Response; body: Uint8Array }> {
    const { fetch: send = fetch } = this.#options;
    const headers = new Headers({ accept: 'application/json', ...call.headers });
    if (this.#key) headers.set('authorization', `Bearer ${this.#key}`);
    const init: RequestInit = { method: call.method ?? 'GET', headers, redirect: 'manual' };
    if (call.signal) init.signal = call.signal;
    const json = call.text ?? (call.body === undefined ? undefined : JSON.stringify(call.body));
    if (json !== undefined) {
      headers.set('content-type', 'application/json');
      init.body = json;
    }
    if (call.content) {
      headers.set('content-type', call.content.type);
      const { bytes, onSent } = call.content;
      init.body = onSent ? streamBytes(bytes, onSent) : new Uint8Array(bytes);
      if (onSent) {
        // Without it, the platform would not know the size before the end.
        headers.set('content-length', String(bytes.length));
        Object.assign(init, { duplex: 'half' });
      }
    }
    const url = this.#base + call.path + encodeQuery(call.query);
    try {
      const response = await send(url, init);
      await this.#refuseRedirect(response, call.path);
      if (response.ok && isEndless) return { response, body: NO_BYTES };
      return { response, body: new Uint8Array(await response.arrayBuffer()) };
    } catch (cause) {
      if (cause instanceof UnreachableError) throw cause;
      const hint = hintAtScheme(cause instanceof Error ? cause.cause : cause, this.#base);
      const reason = `${adviseTrust(describeCause(cause), TRUST_ADVICE)}${hint}`;
      throw new UnreachableError(`${this.#base} does not respond: ${reason}`, { cause });
    }
  }

  #readRefusal(response: Response, body: string): Error {
    const type = response.headers.get('content-type') ?? '';
    if (!type.startsWith('application/problem+json')) {
      const start = body.slice(0, 80);
      return new UnreachableError(`HTTP ${response.status}, not a response of Millrace: ${start}`);
    }
    const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
    const retryAfterMs = Number.isFinite(seconds) ? seconds * 1_000 : undefined;
    const sent = { url: this.#base, hasKey: Boolean(this.#key) };
    return new ApiError(parseAnswer<Problem>(body), retryAfterMs, sent);
  }
}

function streamBytes(
  bytes: Uint8Array,
  onSent: (bytes: number) => void,
): ReadableStream<Uint8Array> {
  let at = 0;
  const source = {
    pull(controller: ReadableStreamDefaultController<Uint8Array>) {
      // What was taken before has been written when more is asked for.
      onSent(at);
      if (at >= bytes.length) return controller.close();
      const part = bytes.slice(at, at + SENT_AT_ONCE);
      at += part.length;
      controller.enqueue(part);
    },
  };
  return new ReadableStream(source, { highWaterMark: 0 });
}

const NO_BYTES = new Uint8Array();

interface RawAnswer {
  body: Uint8Array;
  headers: Headers;
}

/** As `Response.text()` does: invalid bytes become U+FFFD. */
function decode(body: Uint8Array): string {
  return new TextDecoder().decode(body);
}

/** Parses JSON of the platform, typed as the route's answer. @throws UnreachableError */
export function parseAnswer<T>(body: string): T {
  try {
    return JSON.parse(body) as T;
  } catch (cause) {
    throw new UnreachableError(`the response is not JSON: ${body.slice(0, 80)}`, { cause });
  }
}

function isPassing(error: unknown, repeatable: boolean): boolean {
  // With these two, the platform has done nothing.
  if (error instanceof ApiError) {
    const isForNow = error.status === 503 || error.status === 429;
    return isForNow && (error.retryAfterMs ?? 0) <= MOST_WAIT_MS;
  }
  const isRedirect = error instanceof RedirectError;
  return repeatable && error instanceof UnreachableError && !isRedirect;
}

function encodeQuery(query: ApiCall['query'] = {}): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const each of value) given.append(name, each);
    else if (value !== undefined) given.set(name, String(value));
  }
  return given.size > 0 ? `?${given}` : '';
}

/** `fetch` reports only "fetch failed"; its cause has the reason. */
function describeCause(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (cause instanceof Error) return cause.message || ('code' in cause ? String(cause.code) : '');
  return error.message;
}
