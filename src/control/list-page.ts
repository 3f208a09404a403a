// Lists: splits them into pages by number of records and by size as JSON, and creates positions in them.

/** Bytes of JSON in one page. */
export const LIST_BYTES = 4_194_304;

export interface PageBounds {
  /** Most records in one page. */
  limit: number;
  /** Most bytes of JSON in one page; a page has at least one record. Default: LIST_BYTES. */
  maxBytes?: number | undefined;
}

/** Adds records to one page until it is full. */
export class PageCutter {
  readonly #limit: number;
  #left: number;
  #count = 0;

  constructor({ limit, maxBytes = LIST_BYTES }: PageBounds) {
    this.#limit = limit;
    this.#left = maxBytes;
  }

  /** Returns false if the record no longer fits into the page. */
  take(record: unknown): boolean {
    if (this.#count >= this.#limit) return false;
    // Includes the comma after it.
    const bytes = Buffer.byteLength(JSON.stringify(record)) + 1;
    if (this.#count > 0 && bytes > this.#left) return false;
    this.#left -= bytes;
    this.#count++;
    return true;
  }
}

interface PageSource<T, R> extends PageBounds {
  /** All records from the page's start on, in the order of the list. */
  wanted: readonly T[];
  positionOf: (item: T) => number;
  show: (item: T) => R;
}

interface NewestSource<T, R> extends Omit<PageSource<T, R>, 'wanted'> {
  /** All records of the list, oldest first. */
  all: readonly T[];
  /** The page contains only records with smaller positions. Default: it starts with the newest. */
  before?: number | undefined;
}

/** Like `cutPage`, for a list whose newest record comes first. */
export function cutNewest<T, R>({ all, before, ...source }: NewestSource<T, R>) {
  const { positionOf } = source;
  const older = before === undefined ? all : all.filter((item) => positionOf(item) < before);
  return cutPage({ ...source, wanted: older.toReversed() });
}

/** `next` is the position of the next page, if there is one. */
export function cutPage<T, R>(
  source: PageSource<T, R>,
): {
  records: R[];
  next: number | undefined;
} {
  const { positionOf, show, wanted, ...bounds } = source;
  const cutter = new PageCutter(bounds);
  const records: R[] = [];
  let next: number | undefined;
  for (const item of wanted) {
    const record = show(item);
    if (!cutter.take(record)) return { records, next };
    records.push(record);
    next = positionOf(item);
  }
  return { records, next: undefined };
}

/** Positions per millisecond before they run ahead of the clock. */
const PER_MS = 1_000;

/** A later record has a greater position. */
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
