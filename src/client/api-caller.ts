// One call to the service: the request, the problem in a refusal, and repeating over outages.
import { backoffMs } from '../base/backoff.ts';
import { sleep, systemClock } from '../base/clock.ts';
import type { Problem } from '../wire/problem.ts';
import { fillPath, type PathParameters, type Route } from '../wire/route.ts';

export interface ApiCallerOptions {
  /** Of the service, e.g. `http://127.0.0.1:8000`; a path is a prefix of all routes. */
  url: string;
  /** API key. Without one only `millrace dev` on the same machine answers. */
  key?: string | undefined;
  /**
   * How often in a row a call is repeated while no answer comes, or 503 or 429 with a wait of up to a
   * minute. Default 5.
   */
  repeats?: number;
  /** Default: the global one. */
  fetch?: typeof fetch;
}

export interface ApiCall {
  method?: Route['method'];
  path: string;
  query?: Readonly<Record<string, string | number | undefined>>;
  /** Sent as JSON. */
  body?: unknown;
  headers?: Readonly<Record<string, string>>;
  /** Doing it twice is as good as once. Default true. */
  repeatable?: boolean;
  signal?: AbortSignal | undefined;
}

/** Method and path of a route's call. */
export function callOf<Path extends string>(
  route: Route<Path>,
  parameters: PathParameters<Path>,
): Pick<ApiCall, 'method' | 'path'> {
  return { method: route.method, path: fillPath(route, parameters) };
}

/** The service refused the call; `problem` is its answer. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly problem: Problem;
  /** What the service asks for before the call is repeated, ms. */
  readonly retryAfterMs: number | undefined;

  constructor(problem: Problem, retryAfterMs: number | undefined) {
    super(`${problem.title} (${problem.status}): ${problem.detail}`);
    this.problem = problem;
    this.retryAfterMs = retryAfterMs;
  }

  get status(): number {
    return this.problem.status;
  }
}

/** No answer came, or one that is not of this service. */
export class UnreachableError extends Error {
  override readonly name = 'UnreachableError';
}

/** Who is asked to wait longer than that is told so, instead of being kept waiting. */
const MOST_WAIT_MS = 60_000;

const REPEAT_PACE = { baseMs: 200, maxMs: 5_000, jitter: 0.2 };

export class ApiCaller {
  readonly #base: string;
  readonly #options: ApiCallerOptions;

  constructor(options: ApiCallerOptions) {
    const url = new URL(options.url);
    if (url.protocol !== 'http:' && url.protocol !== 'https:') {
      throw new TypeError(`the URL must be http or https: ${options.url}`);
    }
    this.#base = url.origin + url.pathname.replace(/\/+$/, '');
    this.#options = options;
  }

  /** The answer's JSON, taken to be what the route answers. @throws ApiError, UnreachableError */
  async json<T>(call: ApiCall): Promise<T> {
    const { body } = await this.answer(call);
    return parseAnswer<T>(body);
  }

  /** @throws ApiError, UnreachableError, and the signal's reason once it has aborted */
  async answer(call: ApiCall): Promise<{ body: string; headers: Headers }> {
    const { repeats = 5 } = this.#options;
    for (let failures = 1; ; failures++) {
      try {
        return await this.#tryOnce(call);
      } catch (error) {
        call.signal?.throwIfAborted();
        const repeat = failures <= repeats && isPassing(error, call.repeatable ?? true);
        if (!repeat) throw error;
        const asked = error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0;
        const waitMs = Math.max(asked, backoffMs(failures, REPEAT_PACE));
        await sleep(systemClock, waitMs, call.signal);
        call.signal?.throwIfAborted();
      }
    }
  }

  async #tryOnce(call: ApiCall): Promise<{ body: string; headers: Headers }> {
    const { key, fetch: send = fetch } = this.#options;
    const headers = new Headers({ ...call.headers, accept: 'application/json' });
    if (key) headers.set('authorization', `Bearer ${key}`);
    const init: RequestInit = { method: call.method ?? 'GET', headers };
    if (call.signal) init.signal = call.signal;
    if (call.body !== undefined) {
      headers.set('content-type', 'application/json');
      init.body = JSON.stringify(call.body);
    }
    const url = this.#base + call.path + encodeQuery(call.query);
    let response: Response;
    let body: string;
    try {
      response = await send(url, init);
      body = await response.text();
    } catch (cause) {
      throw new UnreachableError(`${this.#base} does not respond: ${describeCause(cause)}`, {
        cause,
      });
    }
    if (response.ok) return { body, headers: response.headers };
    throw readRefusal(response, body);
  }
}

/** Parsed JSON of our own service, taken to be what the route answers. @throws UnreachableError */
export function parseAnswer<T>(body: string): T {
  try {
    return JSON.parse(body) as T;
  } catch (cause) {
    throw new UnreachableError(`the response is not JSON: ${body.slice(0, 80)}`, { cause });
  }
}

function isPassing(error: unknown, repeatable: boolean): boolean {
  // These two say that nothing was done.
  if (error instanceof ApiError) {
    const isForNow = error.status === 503 || error.status === 429;
    return isForNow && (error.retryAfterMs ?? 0) <= MOST_WAIT_MS;
  }
  return repeatable && error instanceof UnreachableError;
}

function readRefusal(response: Response, body: string): Error {
  const type = response.headers.get('content-type') ?? '';
  if (!type.startsWith('application/problem+json')) {
    const start = body.slice(0, 80);
    return new UnreachableError(`HTTP ${response.status}, not a response of Millrace: ${start}`);
  }
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1_000 : undefined;
  return new ApiError(parseAnswer<Problem>(body), retryAfterMs);
}

function encodeQuery(query: ApiCall['query'] = {}): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) given.set(name, String(value));
  }
  return given.size > 0 ? `?${given}` : '';
}

/** `fetch` says only "fetch failed"; the reason is in its cause. */
function describeCause(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (cause instanceof Error) return cause.message || ('code' in cause ? String(cause.code) : '');
  return error.message;
}
