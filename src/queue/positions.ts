// Numbers jobs in the order of their submission.
import type { Clock } from '../base/clock.ts';

export class Positions {
  readonly #clock: Pick<Clock, 'now'>;
  #last = 0;

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  /**
   * Unix microseconds: the current millisecond and a counter. Positions always grow within one
   * process.
   */
  next(): number {
    this.#last = Math.max(this.#clock.now() * 1_000, this.#last + 1);
    return this.#last;
  }
}
