// Slows a long poll down if the platform repeatedly answers early and with nothing new.
import { type Clock, sleep } from '../../base/clock.ts';
import { RetryPace } from './retry-pace.ts';

/** Number of early answers in a row that cause no pause. */
const TOLERATED = 3;

export interface PollAnswer {
  /** When the poll began, Unix ms. */
  askedAt: number;
  /** Longest wait that the poll requested, ms. */
  waitMs: number;
  /** The answer contained something new. */
  isNews: boolean;
}

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
