// The worker's session with the platform: sends hello until the platform accepts it, keeps the terms of the welcome,
// and retries all other calls during outages. Each call has a time limit, so that a half-open connection cannot block
// a loop.
import { type BackoffOptions, backoffMs } from '../base/backoff.ts';
import { type Clock, sleep } from '../base/clock.ts';
import {
  LinkError,
  PROTOCOL_VERSION,
  type WorkerHello,
  type WorkerWelcome,
} from '../wire/link/worker-link.ts';
import { MAX_LISTED } from '../wire/message-bounds.ts';
import type { WorkerStarts } from './starts.ts';
import type { CompleteWorkerOptions } from './worker-options.ts';

const HELLO_LIMIT_MS = 30_000;

/** A lasting refusal is logged this often, ms. */
const REFUSAL_LOGGED_MS = 60_000;

interface RetryOptions {
  /** The call's name in the log. */
  verb: 'take' | 'renew' | 'report';
  /** Ends the retries: the last error is thrown. */
  signal: AbortSignal;
  pace: RetryPace;
  /** Upper bound of every wait, including the waits that the platform asks for. */
  maxWaitMs?: () => number;
  onFailure?: (error: LinkError) => void;
}

export class Session {
  /** JSON text of the handler's input schema, empty if it has none; undefined if unknown. */
  inputSchema: string | undefined;
  /** Retry policy of the handler, JSON text. */
  retry: string | undefined;
  readonly #options: CompleteWorkerOptions;
  readonly #starts: Pick<WorkerStarts, 'last'>;
  readonly #signal: AbortSignal;
  readonly #pace = new RetryPace({ baseMs: 200, maxMs: 5_000, jitter: 0.2 });
  #terms: WorkerWelcome | undefined;
  #trouble: string | undefined;
  /** Since when the platform has refused the key or has had no such endpoint; starts anew after an outage. */
  #refusedSince: number | undefined;
  #loggedAt = Number.NEGATIVE_INFINITY;
  #greeting: Promise<void> | undefined;

  /** The signal ends the session: pending greets reject with LinkError `unavailable`. */
  constructor(
    options: CompleteWorkerOptions,
    starts: Pick<WorkerStarts, 'last'>,
    signal: AbortSignal,
  ) {
    this.#options = options;
    this.#starts = starts;
    this.#signal = signal;
  }

  /** The terms of the last welcome. @throws Error before the first welcome. */
  get terms(): WorkerWelcome {
    if (!this.#terms) throw new Error('the worker has not connected yet');
    return this.#terms;
  }

  /** Why the platform does not accept the worker now; undefined if it does. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /**
   * Says hello until the platform accepts it; concurrent callers share one attempt. A refused key and a missing
   * endpoint are retried slowly, for `authTimeoutMs`. @throws LinkError `stale_incarnation`, `invalid` or
   * `unauthorized`, which are permanent
   */
  greet(after?: LinkError): Promise<void> {
    this.#greeting ??= this.#sayHello(after).finally(() => {
      this.#greeting = undefined;
    });
    return this.#greeting;
  }

  /**
   * Repeats a call until it is answered. If the platform is unavailable, waits first; if it does
   * not know or accept the worker, says hello first.
   * @throws LinkError `stale_incarnation` or `invalid`; any LinkError once the signal has aborted
   */
  async callUntilAnswered<T>(call: () => Promise<T>, retry: RetryOptions): Promise<T> {
    const { verb, signal, pace, maxWaitMs, onFailure } = retry;
    for (;;) {
      try {
        const answer = await call();
        if (pace.failures > 0) {
          this.#options.observer?.reconnected(verb);
          this.#options.log.info({ verb }, 'reconnected to the platform');
        }
        pace.reset();
        return answer;
      } catch (thrown) {
        const error = toLinkError(thrown);
        if (!signal.aborted) this.#options.observer?.callFailed(verb, error.code);
        if (signal.aborted || error.code === 'stale_incarnation' || error.code === 'invalid') {
          throw error;
        }
        onFailure?.(error);
        const again = pace.failures > 0;
        const waitMs = Math.min(pace.next(error), maxWaitMs?.() ?? Number.POSITIVE_INFINITY);
        // Without `err`: its stack says nothing about the platform.
        const note = { verb, code: error.code, reason: error.message, waitMs };
        if (again) this.#options.log.debug(note, 'platform still unreachable, retrying');
        else this.#options.log.warn(note, 'platform unreachable, retrying');
        const isOutage = error.code === 'unavailable' && !error.endpointMissing;
        if (isOutage) await sleep(this.#options.clock, waitMs, signal);
        else {
          // The platform rejected the worker right after a welcome: wait, to avoid a tight loop.
          if (again) await sleep(this.#options.clock, waitMs, signal);
          await this.greet(error);
        }
        if (signal.aborted) throw error;
      }
    }
  }

  async #sayHello(after: LinkError | undefined): Promise<void> {
    let error = after;
    for (;;) {
      if (error && error.code !== 'unknown_worker') await this.#waitAfter(error);
      if (this.#signal.aborted) throw new LinkError('unavailable', 'the worker is shutting down');
      try {
        const welcome = await callWithin(
          { clock: this.#options.clock, limitMs: HELLO_LIMIT_MS, signal: this.#signal },
          () => this.#options.link.hello(this.#describe()),
        );
        this.#terms = welcome;
        this.#trouble = undefined;
        this.#refusedSince = undefined;
        if (this.#pace.failures > 0) this.#options.observer?.reconnected('hello');
        this.#pace.reset();
        this.#options.log.info({ ...welcome }, 'worker connected');
        return;
      } catch (thrown) {
        error = toLinkError(thrown);
        if (!this.#signal.aborted) this.#options.observer?.callFailed('hello', error.code);
        if (error.code === 'stale_incarnation' || error.code === 'invalid') throw error;
        if (error.code === 'unknown_worker') {
          error = new LinkError('unavailable', error.message, { cause: error });
        }
      }
    }
  }

  async #waitAfter(error: LinkError): Promise<void> {
    const isRefused = error.code === 'unauthorized' || error.endpointMissing;
    const now = this.#options.clock.now();
    this.#refusedSince = isRefused ? (this.#refusedSince ?? now) : undefined;
    const leftMs = (this.#refusedSince ?? now) + this.#options.authTimeoutMs - now;
    if (isRefused && leftMs <= 0) {
      const seconds = Math.round(this.#options.authTimeoutMs / 1_000);
      const text = error.endpointMissing
        ? `the platform has had no such endpoint for ${seconds} s: ${error.message}`
        : `the platform has refused the key for ${seconds} s: ${error.message}`;
      throw new LinkError('unauthorized', text, { cause: error });
    }
    const isKeyRefused = error.code === 'unauthorized';
    const retryMs = isKeyRefused ? this.#options.refusedRetryMs : this.#pace.next(error);
    const waitMs = isRefused ? Math.min(retryMs, leftMs) : retryMs;
    const reason = `${describeTrouble(error)}: ${error.message}`;
    const isDue = isRefused && now - this.#loggedAt >= REFUSAL_LOGGED_MS;
    const isNews = this.#trouble !== reason || isDue;
    this.#trouble = reason;
    if (isNews) this.#loggedAt = now;
    // Without `err`: its message is in the reason, and its stack says nothing about the platform.
    this.#options.log[isNews ? 'error' : 'debug']({ code: error.code, waitMs }, reason);
    await sleep(this.#options.clock, waitMs, this.#signal);
  }

  #describe(): WorkerHello {
    const { workerId, incarnation, version, devices, executor, outbox } = this.#options;
    const { inputSchema, retry } = this;
    const { handlerVersion } = this.#options;
    const { last: start } = this.#starts;
    return {
      workerId,
      incarnation,
      protocol: PROTOCOL_VERSION,
      version,
      slots: executor.slots,
      devices: [...devices],
      // A worker with this many outcomes takes no jobs, so one process never leaves more.
      outbox: outbox.undeliveredOnDisk().slice(0, MAX_LISTED),
      ...(inputSchema !== undefined && { inputSchema }),
      ...(retry !== undefined && { retry }),
      ...(handlerVersion !== undefined && { handlerVersion }),
      ...(start && { start }),
    };
  }
}

function describeTrouble(error: LinkError): string {
  if (error.endpointMissing) {
    return 'the platform has no such endpoint; correct its name, or create it';
  }
  return error.code === 'unauthorized'
    ? 'the platform refuses the key'
    : 'the platform is unavailable';
}

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
