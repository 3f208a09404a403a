// Repeats a pass over due work, one pass at a time: at the time that the last pass returned,
// earlier if the loop is woken, and later if a pass failed.
import { type Clock, letOthersRun, sleep } from './clock.ts';

/** Longest sleep, ms; it bounds the effect of a clock that was set. */
export const MAX_SLEEP_MS = 30_000;
/** Wait after a failed pass, ms. */
export const RETRY_MS = 1_000;

/** Returned by a pass that should run again after other work. */
export const AT_ONCE = Number.NEGATIVE_INFINITY;
/** Returned by a pass that knows of no further due time. */
export const NEVER = Number.POSITIVE_INFINITY;

export interface LoopOptions {
  clock: Clock;
  /** Does the work that is due now. Returns the time of the next due work, Unix ms. */
  pass: () => Promise<number>;
  /** Called when a pass failed; the next one begins after RETRY_MS. Not called while the loop stops. */
  onError: (error: unknown) => void;
  /** Ends the loop after the running pass. */
  closing: AbortSignal;
}

export class Loop {
  readonly #options: LoopOptions;
  /** Earliest time requested by a wake-up since the last pass began. */
  #askedFor = NEVER;
  /** End of the current sleep; AT_ONCE while a pass runs. */
  #sleepsUntil = AT_ONCE;
  #sleep = new AbortController();

  constructor(options: LoopOptions) {
    this.#options = options;
  }

  /**
   * Requests a pass at `at`, Unix ms; without `at`, now. A wake-up during a pass is kept, because
   * the pass may have read its data before.
   */
  wake(at = AT_ONCE): void {
    this.#askedFor = Math.min(this.#askedFor, at);
    if (at < this.#sleepsUntil) this.#sleep.abort();
  }

  /** Resolves when `closing` has aborted and no pass runs; never rejects. */
  async run(): Promise<void> {
    const { clock, closing, onError, pass } = this.#options;
    while (!closing.aborted) {
      this.#askedFor = NEVER;
      try {
        const nextAt = await pass();
        if (nextAt === AT_ONCE) await letOthersRun();
        else await this.#sleepUntil(nextAt);
      } catch (error) {
        if (closing.aborted) return;
        onError(error);
        await sleep(clock, RETRY_MS, closing);
      }
    }
  }

  async #sleepUntil(nextAt: number): Promise<void> {
    const { clock, closing } = this.#options;
    const startedAt = clock.now();
    const latest = Math.max(startedAt + 1, Math.min(nextAt, startedAt + MAX_SLEEP_MS));
    while (!closing.aborted) {
      const until = Math.min(latest, this.#askedFor);
      const leftMs = until - clock.now();
      if (leftMs <= 0) break;
      this.#sleep = new AbortController();
      this.#sleepsUntil = until;
      await sleep(clock, leftMs, AbortSignal.any([closing, this.#sleep.signal]));
    }
    this.#sleepsUntil = AT_ONCE;
  }
}
