// HTTP as RunPod's worker protocol wants it: its headers, the key as it is, and what an answer means.
// When a call is made again is up to who makes it.
import { Agent, request } from 'undici';
import { backoffMs } from '../../base/backoff.ts';
import { readRetryAfterMs } from '../../base/retry-after.ts';
import { LinkError } from '../../wire/link/worker-link.ts';
import { describeFailure } from '../http/http-errors.ts';

/** The version of the protocol's public client whose behaviour this follows. */
export const RUNPOD_PROTOCOL_VERSION = '1.12.0';

const PACE = { baseMs: 200, maxMs: 10_000, jitter: 0.2 };
/** An answer that does not say itself when to come again, ms. */
const TOO_MANY_REQUESTS_MS = 5_000;
const REFUSED_KEY_MS = 30_000;
const NOT_FOUND_MS = 10_000;
/** Whatever is asked for. */
const MAX_RETRY_AFTER_MS = 3_600_000;

export interface RunPodCallerOptions {
  /** Sent as it is, without `Bearer`. */
  key: string | undefined;
  /** Of the package, for the user agent. */
  version: string;
  /** ms to open a connection. Default 10,000. */
  connectMs?: number | undefined;
  /** ms that a post may take until its answer begins. Default 60,000. */
  postMs?: number | undefined;
}

export interface RunPodAnswer {
  status: number;
  /** Undefined if there is none, or none that can be read. */
  body: unknown;
  retryAfterMs: number | undefined;
}

interface GetOptions {
  /** Given up after so long, ms. */
  limitMs: number;
  signal?: AbortSignal;
}

export class RunPodCaller {
  readonly #agent: Agent;
  readonly #postMs: number;
  readonly #common: Record<string, string>;

  constructor({ connectMs = 10_000, key, postMs = 60_000, version }: RunPodCallerOptions) {
    this.#agent = new Agent({ connect: { timeout: connectMs } });
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
        // An id may be any text, and a header may not.
        'x-request-id': encodeURIComponent(jobId),
      },
      body,
      headersTimeout: this.#postMs,
      bodyTimeout: this.#postMs,
    });
  }

  /** Cuts what is open. */
  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #call(url: string, options: Parameters<typeof request>[1]): Promise<RunPodAnswer> {
    try {
      const response = await request(url, { ...options, dispatcher: this.#agent });
      const { headers, statusCode: status } = response;
      const body = readJson(await response.body.text());
      const askedMs = readRetryAfterMs(headers['retry-after'], Date.now());
      const retryAfterMs = askedMs && Math.min(askedMs, MAX_RETRY_AFTER_MS);
      return { status, body, retryAfterMs };
    } catch (cause) {
      throw new LinkError('unavailable', describeFailure(cause), { cause });
    }
  }
}

export function isSuccess({ status }: RunPodAnswer): boolean {
  return status >= 200 && status < 300;
}

/** It may be another answer the next time, without anything else having changed. */
export function isPassing({ status }: RunPodAnswer): boolean {
  return status >= 500 || [401, 403, 408, 425, 429].includes(status);
}

/** An answer that is no success, as what is to be repeated after a while. */
export function toPassingError(what: string, answer: RunPodAnswer): LinkError {
  const { retryAfterMs = chooseWait(answer.status) } = answer;
  return new LinkError('unavailable', `${what}: ${describeAnswer(answer)}`, { retryAfterMs });
}

/** ms until what has failed so often in a row is tried again: no sooner than was asked for. */
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
