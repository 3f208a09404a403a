// Places in lists: a thing that was made later has a greater one.

/** Things that one process can make in a millisecond before it runs ahead of the clock. */
const PER_MS = 1_000;

export class Positions {
  #last: number;

  /** `last`: the greatest that was given before, 0 if there is none. */
  constructor(last: number) {
    this.#last = last;
  }

  /** Grows also when the clock is set back. */
  next(now: number): number {
    this.#last = Math.max(this.#last + 1, now * PER_MS);
    return this.#last;
  }
}
