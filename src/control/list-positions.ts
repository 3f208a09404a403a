// Creates positions in lists: a later record has a greater one.

/** Positions per millisecond before they run ahead of the clock. */
const PER_MS = 1_000;

export class Positions {
  #last: number;

  /** `last`: the greatest earlier position, 0 without any. */
  constructor(last: number) {
    this.#last = last;
  }

  /** Grows even if the clock is set back. */
  next(now: number): number {
    this.#last = Math.max(this.#last + 1, now * PER_MS);
    return this.#last;
  }
}
