// Limits how often one message is logged in a minute, so that callers who cause a line each time
// cannot fill the disk.

const WINDOW_MS = 60_000;

/** The number of lines of one message that were dropped. */
export interface Suppressed {
  message: string;
  count: number;
}

export class LineLimit {
  readonly #maxLines: number;
  readonly #now: () => number;
  readonly #counts = new Map<string, number>();
  #windowEnd = Number.NEGATIVE_INFINITY;

  /** `now`: monotonic, ms. */
  constructor(maxLines: number, now: () => number) {
    this.#maxLines = maxLines;
    this.#now = now;
  }

  /** Counts a line. False if the limit of its message is reached for this minute. */
  admit(message: string): boolean {
    const count = (this.#counts.get(message) ?? 0) + 1;
    this.#counts.set(message, count);
    return count <= this.#maxLines;
  }

  /** Returns the drops of the last full minute, once. Call it before each line. */
  takeSuppressed(): Suppressed[] {
    const now = this.#now();
    if (now < this.#windowEnd) return [];
    this.#windowEnd = now + WINDOW_MS;
    const suppressed = [...this.#counts].flatMap(([message, lines]) =>
      lines > this.#maxLines ? [{ message, count: lines - this.#maxLines }] : [],
    );
    this.#counts.clear();
    return suppressed;
  }
}
