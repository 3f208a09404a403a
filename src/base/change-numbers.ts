// A number for each key that is another one after each change, so that readers notice changes without reading.

/** Most keys that are kept. */
const MAX_KEYS = 10_000;

export class ChangeNumbers {
  readonly #numbers = new Map<string, number>();
  #last = 0;
  /** Of all keys that are not kept. */
  #others = 0;

  of(key: string): number {
    return this.#numbers.get(key) ?? this.#others;
  }

  note(key: string): void {
    if (this.#numbers.size >= MAX_KEYS && !this.#numbers.has(key)) {
      // As if all had changed.
      this.#numbers.clear();
      this.#last += 1;
      this.#others = this.#last;
    }
    this.#last += 1;
    this.#numbers.set(key, this.#last);
  }
}
