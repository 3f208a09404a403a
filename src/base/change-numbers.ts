// Keeps a number for each key, which differs after each change. So readers notice a change without reading the data.

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
      // Readers take all keys for changed.
      this.#numbers.clear();
      this.#last += 1;
      this.#others = this.#last;
    }
    this.#last += 1;
    this.#numbers.set(key, this.#last);
  }
}
