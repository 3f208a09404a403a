// Remembers the job IDs that callers have chosen lately. A repeated submission may overtake the first one, so
// both must look whether the job exists.

/** A repetition follows its first submission within seconds. */
const MAX_IDS = 16_384;

export class ChosenIds {
  readonly #seen = new Map<string, 'once' | 'again'>();

  note(id: string): void {
    this.#seen.set(id, this.#seen.has(id) ? 'again' : 'once');
    const [oldest] = this.#seen.size > MAX_IDS ? this.#seen.keys() : [];
    if (oldest !== undefined) this.#seen.delete(oldest);
  }

  isRepeated(id: string): boolean {
    return this.#seen.get(id) === 'again';
  }
}
