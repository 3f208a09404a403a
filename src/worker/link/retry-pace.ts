// Decides how long a repeated call waits between failures: backoff with jitter, or the wait that the
// platform asks for.
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';
import type { LinkError } from '../../wire/link/worker-link.ts';

export class RetryPace {
  readonly #options: BackoffOptions;
  #failures = 0;

  constructor(options: BackoffOptions) {
    this.#options = options;
  }

  get failures(): number {
    return this.#failures;
  }

  /**
   * Counts a failure. @returns ms to wait before the next attempt, never less than the error asks
   * for
   */
  next(error?: LinkError): number {
    this.#failures++;
    const waitMs = backoffMs(this.#failures, this.#options);
    if (error?.retryAfterMs === undefined) return waitMs;
    // Many workers get the same time, so each adds a random part.
    const { random = Math.random, jitter } = this.#options;
    return Math.round(error.retryAfterMs * (1 + jitter * random()));
  }

  reset(): void {
    this.#failures = 0;
  }
}
