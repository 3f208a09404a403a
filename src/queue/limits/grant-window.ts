// The grants of a sliding window: never more than `max` in any window of `perMs`. A window keeps at most SLICES entries, whatever
// `max` is: grants of one slice are one entry, which counts until the last of them is out of the window.
import type { RateLimit } from '../../wire/resources/field.ts';

/** A grant may count this share of the window longer than it should. */
const SLICES = 128;

/** First and last grant of a slice, Unix ms, and their number. */
export type GrantEntry = [first: number, last: number, count: number];

export class GrantWindow {
  /** The oldest first. */
  readonly #entries: GrantEntry[];
  #total = 0;

  /** `entries`: as `entries` has returned them. A time after `now` was written before the clock was set back. */
  constructor(entries: readonly GrantEntry[] = [], now = Number.POSITIVE_INFINITY) {
    this.#entries = entries.map(([first, last, count]) => [
      Math.min(first, now),
      Math.min(last, now),
      count,
    ]);
    for (const [, , count] of entries) this.#total += count;
  }

  get entries(): readonly GrantEntry[] {
    return this.#entries;
  }

  /** Grants that are free now. */
  free({ max, perMs }: RateLimit, now: number): number {
    this.#forget(now - perMs);
    return Math.max(0, max - this.#total);
  }

  add(count: number, { perMs }: RateLimit, now: number): void {
    this.#total += count;
    const newest = this.#entries.at(-1);
    // Grants of one commit may come in another order than their times.
    const at = Math.max(now, newest?.[1] ?? now);
    if (newest && at - newest[0] < perMs / SLICES) {
      newest[1] = at;
      newest[2] += count;
    } else this.#entries.push([at, at, count]);
  }

  /** When a grant is free; -Infinity: now. */
  freeAt({ max, perMs }: RateLimit): number {
    let left = this.#total;
    for (const [, last, count] of this.#entries) {
      if (left < max) break;
      left -= count;
      if (left < max) return last + perMs;
    }
    return Number.NEGATIVE_INFINITY;
  }

  /** When it is empty; -Infinity: it is. */
  emptyAt({ perMs }: Pick<RateLimit, 'perMs'>): number {
    const newest = this.#entries.at(-1);
    return newest ? newest[1] + perMs : Number.NEGATIVE_INFINITY;
  }

  #forget(upTo: number): void {
    let over = 0;
    while (over < this.#entries.length) {
      const entry = this.#entries[over];
      if (!entry || entry[1] > upTo) break;
      this.#total -= entry[2];
      over++;
    }
    if (over > 0) this.#entries.splice(0, over);
  }
}
