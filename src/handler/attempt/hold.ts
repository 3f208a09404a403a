// Holds: while an attempt waits for its model process to start, neither its execution time nor its GPU usage counts.

/** Member of `ctx`. The symbol is global, because the author's node_modules may have another copy of this package. */
export const HOLD = Symbol.for('millrace.hold');

export type EndHold = () => void;

/** A context that counts the holds of its attempts. */
export interface Held {
  [HOLD]: () => EndHold;
}

/** Begins a hold if the options are the `ctx` of an attempt or a batch. */
export function beginHold(options: object): EndHold {
  const hold = HOLD in options ? options[HOLD] : undefined;
  const end: unknown = typeof hold === 'function' ? hold.call(options) : undefined;
  return () => {
    if (typeof end === 'function') end();
  };
}

/** The holds of one attempt; they may overlap. */
export class Holds {
  readonly #now: () => number;
  readonly #onChange: (isHeld: boolean) => void;
  #open = 0;
  #since = 0;
  #ms = 0;

  constructor(now: () => number, onChange: (isHeld: boolean) => void) {
    this.#now = now;
    this.#onChange = onChange;
  }

  get isHeld(): boolean {
    return this.#open > 0;
  }

  /** Total time of the holds, ms. */
  get ms(): number {
    return this.#ms + (this.isHeld ? this.#now() - this.#since : 0);
  }

  begin = (): EndHold => {
    this.#open += 1;
    if (this.#open === 1) {
      this.#since = this.#now();
      this.#onChange(true);
    }
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#open -= 1;
      if (this.#open > 0) return;
      this.#ms += this.#now() - this.#since;
      this.#onChange(false);
    };
  };
}
