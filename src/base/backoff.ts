// Waits before a retry: exponential, capped, with jitter; or what the Retry-After header of HTTP asks for.

export interface BackoffOptions {
  /** Wait before the first retry, ms. */
  baseMs: number;
  /** No wait is longer than this, ms. */
  maxMs: number;
  /** Each wait is this many times the one before. Default 2. */
  factor?: number;
  /** Largest random change of a wait, as a share: 0.2 is ±20 %. */
  jitter: number;
  /** Uniform in [0, 1). */
  random?: () => number;
}

/** The wait in whole ms before retry number `retry`, counted from 1. */
export function backoffMs(retry: number, options: BackoffOptions): number {
  const { baseMs, factor = 2, maxMs, jitter, random = Math.random } = options;
  const plain = Math.min(maxMs, baseMs * factor ** Math.min(retry - 1, 30));
  return Math.round(Math.min(maxMs, plain * (1 + jitter * (2 * random() - 1))));
}

/** 31 years: caps larger values, so that the wait in ms stays a safe integer. */
const MAX_SECONDS = 999_999_999;

/** Returns the wait that the header (seconds or a date) requests, ms; undefined without a valid one. */
export function readRetryAfterMs(
  header: string | string[] | undefined,
  now: number,
): number | undefined {
  const text = (Array.isArray(header) ? header[0] : header)?.trim();
  if (text === undefined || text === '') return undefined;
  if (/^\d+$/.test(text)) return Math.min(Number(text), MAX_SECONDS) * 1_000;
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
