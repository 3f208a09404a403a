// Repeats a pass over what is due: when the pass says that more falls due, or earlier if it is woken; a
// while later after a pass that failed. One pass at a time.
import { type Clock, letOthersRun, sleep } from './clock.ts';

/** A sleep is never longer, so that a clock that was set does not matter for long. */
export const MAX_SLEEP_MS = 30_000;
/** After a pass that failed. */
export const RETRY_MS = 1_000;

/** What a pass returns to be repeated as soon as everybody else had a turn. */
export const AT_ONCE = Number.NEGATIVE_INFINITY;
/** What a pass returns when nothing is due at a known time. */
export const NEVER = Number.POSITIVE_INFINITY;

export interface LoopOptions {
  clock: Clock;
  /** Does what is due now. Returns when the next thing is due, Unix ms. */
  pass: () => Promise<number>;
  /** A pass failed; the next one begins in RETRY_MS. Not called while the loop stops. */
  onError: (error: unknown) => void;
  /** Ends the loop after the pass that is under way. */
  closing: AbortSignal;
}

export class Loop {
  readonly #options: LoopOptions;
  /** The earliest time that a wake-up named since the last pass began. */
  #askedFor = NEVER;
  /** AT_ONCE: awake. */
  #sleepsUntil = AT_ONCE;
  #sleep = new AbortController();

  constructor(options: LoopOptions) {
    this.#options = options;
  }

  /**
   * Something is due at `at`, Unix ms; without it, now. The pass that then begins has to return what is due
   * after it. A wake-up during a pass is kept, whether the pass still sees its cause or not.
   */
  wake(at = AT_ONCE): void {
    this.#askedFor = Math.min(this.#askedFor, at);
    if (at < this.#sleepsUntil) this.#sleep.abort();
  }

  /** Resolves when `closing` has aborted and no pass is under way; never rejects. */
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
