// HTTP for RunPod's worker protocol: its headers, the bare key, and the meaning of answers. Callers
// decide about retries.
import { request } from 'undici';
import { backoffMs, readRetryAfterMs } from '../../base/backoff.ts';
import { OutgoingAgents } from '../../base/net/outgoing-agents.ts';
import type { ChooseProxy } from '../../base/net/outgoing-proxy.ts';
import { describeCallFailure, describeRedirect } from '../../base/net/request-hints.ts';
import { LinkError } from '../../wire/link/worker-link.ts';

/** Version of the protocol's public client whose behaviour this follows. */
export const RUNPOD_PROTOCOL_VERSION = '1.12.0';

const PACE = { baseMs: 200, maxMs: 10_000, jitter: 0.2 };
/** Wait after a 429 without Retry-After, ms. */
const TOO_MANY_REQUESTS_MS = 5_000;
const REFUSED_KEY_MS = 30_000;
const NOT_FOUND_MS = 10_000;
/** Upper bound of any requested wait. */
const MAX_RETRY_AFTER_MS = 3_600_000;

interface RunPodCallerOptions {
  /** Sent unchanged, without `Bearer`. */
  key: string | undefined;
  /** Version of the package, for the user agent. */
  version: string;
  chooseProxy: ChooseProxy;
  /** Time to open a connection, ms. Default 10,000. */
  connectMs?: number | undefined;
  /** Time until the answer to a post begins, ms. Default 60,000. */
  postMs?: number | undefined;
}

export interface RunPodAnswer {
  status: number;
  /** Undefined without a readable body. */
  body: unknown;
  retryAfterMs: number | undefined;
}

interface GetOptions {
  /** The call is given up after this time, ms. */
  limitMs: number;
  signal?: AbortSignal;
}

export class RunPodCaller {
  readonly #agents: OutgoingAgents;
  readonly #postMs: number;
  readonly #common: Record<string, string>;

  constructor(options: RunPodCallerOptions) {
    const { chooseProxy, connectMs = 10_000, key, postMs = 60_000, version } = options;
    this.#agents = new OutgoingAgents({ chooseProxy, agent: { connect: { timeout: connectMs } } });
    this.#postMs = postMs;
    const agent = `Millrace/${version} (RunPod worker protocol ${RUNPOD_PROTOCOL_VERSION})`;
    this.#common = { 'user-agent': agent, ...(key !== undefined && { authorization: key }) };
  }

  /** @throws LinkError `unavailable` if there is no answer */
  async get(url: string, { limitMs, signal }: GetOptions): Promise<RunPodAnswer> {
    const limit = AbortSignal.timeout(limitMs);
    return this.#call(url, {
      method: 'GET',
      headers: { ...this.#common, 'content-type': 'application/json' },
      headersTimeout: limitMs,
      bodyTimeout: limitMs,
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  }

  /** @throws LinkError `unavailable` if there is no answer */
  async post(url: string, jobId: string, body: Uint8Array): Promise<RunPodAnswer> {
    return this.#call(url, {
      method: 'POST',
      headers: {
        ...this.#common,
        'content-type': 'application/x-www-form-urlencoded',
        charset: 'utf-8',
        // An ID may be any text, but a header may not.
        'x-request-id': encodeURIComponent(jobId),
      },
      body,
      headersTimeout: this.#postMs,
      bodyTimeout: this.#postMs,
    });
  }

  /** Breaks open calls. */
  close(): Promise<void> {
    return this.#agents.destroy();
  }

  async #call(text: string, options: Parameters<typeof request>[1]): Promise<RunPodAnswer> {
    const url = new URL(text);
    try {
      const dispatcher = await this.#agents.open(url);
      const response = await request(url, { ...options, dispatcher });
      const { headers, statusCode: status } = response;
      const body = readJson(await response.body.text());
      const askedMs = readRetryAfterMs(headers['retry-after'], Date.now());
      const retryAfterMs = askedMs && Math.min(askedMs, MAX_RETRY_AFTER_MS);
      const location = [headers['location']].flat().at(0);
      const redirect = describeRedirect({ status, location, url: text, path: url.pathname });
      return { status, body: redirect ?? body, retryAfterMs };
    } catch (cause) {
      const reason = `${describeCallFailure(cause)}${this.#agents.describe(url)}`;
      throw new LinkError('unavailable', reason, { cause });
    }
  }
}

export function isSuccess({ status }: RunPodAnswer): boolean {
  return status >= 200 && status < 300;
}

/** Whether a retry may get another answer. */
export function isTransientAnswer({ status }: RunPodAnswer): boolean {
  return status >= 500 || [401, 403, 408, 425, 429].includes(status);
}

/** Translates an error answer into a LinkError that is retried. */
export function toPassingError(what: string, answer: RunPodAnswer): LinkError {
  const { retryAfterMs = chooseWait(answer.status) } = answer;
  return new LinkError('unavailable', `${what}: ${describeAnswer(answer)}`, { retryAfterMs });
}

/** Time until the next attempt after this many failures in a row, ms; never less than requested. */
export function chooseRetryMs(error: unknown, failures: number): number {
  const { retryAfterMs = 0 } = error instanceof LinkError ? error : {};
  return Math.max(retryAfterMs, backoffMs(failures, PACE));
}

export function describeAnswer({ body, status }: RunPodAnswer): string {
  const text = body === undefined ? '' : ` ${JSON.stringify(body).slice(0, 200)}`;
  return `${status}${text}`;
}

function chooseWait(status: number): number | undefined {
  if (status === 429) return TOO_MANY_REQUESTS_MS;
  if (status === 401 || status === 403) return REFUSED_KEY_MS;
  return status === 404 ? NOT_FOUND_MS : undefined;
}

function readJson(text: string): unknown {
  if (text.length === 0) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
