// Calls over the link: makes one call with a time limit, so that a half-open connection cannot block a loop, and decides
// how long a repeated call waits: between failures, and after answers that come early and with nothing new.
import { type BackoffOptions, backoffMs } from '../base/backoff.ts';
import { type Clock, sleep } from '../base/clock.ts';
import { LinkError } from '../wire/link/worker-link.ts';

/**
 * Time limit of a call that transfers inputs or outputs, in addition to its requested wait. This is
 * a last resort: the carrier monitors progress and gives up a dead connection sooner.
 */
export const TRANSFER_LIMIT_MS = 300_000;

/** Number of early answers in a row that cause no pause. */
const TOLERATED = 3;

interface CallLimits {
  clock: Clock;
  /** The call is given up after this time, ms. */
  limitMs: number;
  /** Passed to the call. If the call answers after the abort, the answer still counts. */
  signal?: AbortSignal;
}

/**
 * Makes the call. If it has not settled after `limitMs`, aborts its signal, so that the carrier
 * drops the connection, and rejects with LinkError `unavailable`.
 */
export function callWithin<T>(
  { clock, limitMs, signal }: CallLimits,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const abort = () => controller.abort();
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort, { once: true });
  return new Promise<T>((resolve, reject) => {
    const cancel = clock.after(limitMs, () => {
      reject(new LinkError('unavailable', `no response within ${limitMs} ms`));
      abort();
    });
    call(controller.signal)
      .then(resolve, reject)
      .finally(() => {
        cancel();
        signal?.removeEventListener('abort', abort);
      });
  });
}

/**
 * Converts any error of a link to a LinkError: unknown errors count as temporary and are retried.
 */
export function toLinkError(error: unknown): LinkError {
  if (error instanceof LinkError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new LinkError('unavailable', message, { cause: error });
}

/** How long a repeated call waits after a failure: backoff with jitter, or the wait that the platform asks for. */
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

interface PollAnswer {
  /** When the poll began, Unix ms. */
  askedAt: number;
  /** Longest wait that the poll requested, ms. */
  waitMs: number;
  /** The answer contained something new. */
  isNews: boolean;
}

/** Slows a long poll down if the platform repeatedly answers early and with nothing new. */
export class EarlyAnswers {
  readonly #clock: Clock;
  readonly #pace = new RetryPace({ baseMs: 50, maxMs: 1_000, jitter: 0.2 });

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Call it between an answer and the next poll. Waits only if too many answers were early. */
  async slowDown({ askedAt, isNews, waitMs }: PollAnswer, signal: AbortSignal): Promise<void> {
    const isEarly = this.#clock.now() - askedAt < waitMs / 2;
    if (isNews || !isEarly) return this.#pace.reset();
    const pauseMs = this.#pace.next();
    if (this.#pace.failures > TOLERATED) await sleep(this.#clock, pauseMs, signal);
  }
}
