// Slows a long poll down whose platform answers again and again before the time that was asked for, and
// with nothing new.
import { type Clock, sleep } from '../base/clock.ts';
import { RetryPace } from './retry-pace.ts';

/** So many in a row are chance. */
const BY_CHANCE = 3;

export interface PollAnswer {
  /** Unix ms. */
  askedAt: number;
  /** Longest wait that the poll asked for. */
  waitMs: number;
  isNews: boolean;
}

export class EarlyAnswers {
  readonly #clock: Clock;
  readonly #pace = new RetryPace({ baseMs: 50, maxMs: 1_000, jitter: 0.2 });

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Between an answer and the next poll. Resolves at once unless too many answers were early. */
  async slowDown({ askedAt, isNews, waitMs }: PollAnswer, signal: AbortSignal): Promise<void> {
    const isEarly = this.#clock.now() - askedAt < waitMs / 2;
    if (isNews || !isEarly) return this.#pace.reset();
    const pauseMs = this.#pace.next();
    if (this.#pace.failures > BY_CHANCE) await sleep(this.#clock, pauseMs, signal);
  }
}
