// Computes the wait before a retry: exponential, capped, with jitter.

export interface BackoffOptions {
  /** Wait before the first retry, ms. */
  baseMs: number;
  /** No wait is longer than this, ms. */
  maxMs: number;
  /** Largest random change of a wait, as a share: 0.2 is ±20 %. */
  jitter: number;
  /** Uniform in [0, 1). */
  random?: () => number;
}

/** The wait in whole ms before retry number `retry`, counted from 1. */
export function backoffMs(retry: number, options: BackoffOptions): number {
  const { baseMs, maxMs, jitter, random = Math.random } = options;
  const plain = Math.min(maxMs, baseMs * 2 ** Math.min(retry - 1, 30));
  return Math.round(Math.min(maxMs, plain * (1 + jitter * (2 * random() - 1))));
}
