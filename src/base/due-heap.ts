// A binary heap of items by the time at which each is due. An item can be moved and removed.

interface HeapEntry<Item> {
  item: Item;
  /** Milliseconds of the caller's clock. */
  at: number;
}

/** `set` and `delete` take O(log n), `firstAt` O(1), `list` O(k log n) for k listed items. */
export class DueHeap<Item> {
  readonly #entries: HeapEntry<Item>[] = [];
  /** Position of each item in `#entries`. */
  readonly #indexes = new Map<Item, number>();

  get size(): number {
    return this.#entries.length;
  }

  /** When the first item is due; Infinity if there is none. */
  get firstAt(): number {
    return this.#entries[0]?.at ?? Number.POSITIVE_INFINITY;
  }

  /** Adds the item, or moves it to another time. */
  set(item: Item, at: number): void {
    this.delete(item);
    this.#entries.push({ item, at });
    this.#rise(this.#entries.length - 1);
  }

  delete(item: Item): void {
    const index = this.#indexes.get(item);
    if (index === undefined) return;
    this.#indexes.delete(item);
    const last = this.#entries.pop();
    if (last === undefined || index === this.#entries.length) return;
    this.#put(last, index);
    this.#rise(index);
    this.#sink(this.#indexes.get(last.item) ?? index);
  }

  /** Returns the first items that are due at `now`, at most `limit`, in order. They stay in the heap. */
  list(now: number, limit: number): Item[] {
    const listed: HeapEntry<Item>[] = [];
    while (listed.length < limit && this.firstAt <= now) {
      const [first] = this.#entries;
      if (first === undefined) break;
      listed.push(first);
      this.delete(first.item);
    }
    for (const { at, item } of listed) this.set(item, at);
    return listed.map(({ item }) => item);
  }

  #rise(start: number): void {
    const entry = this.#entries[start];
    if (entry === undefined) return;
    let index = start;
    while (index > 0) {
      const above = (index - 1) >> 1;
      const parent = this.#entries[above];
      if (parent === undefined || parent.at <= entry.at) break;
      this.#put(parent, index);
      index = above;
    }
    this.#put(entry, index);
  }

  #sink(start: number): void {
    const entry = this.#entries[start];
    if (entry === undefined) return;
    let index = start;
    for (;;) {
      const below = this.#earlierChild(index);
      const child = this.#entries[below];
      if (child === undefined || child.at >= entry.at) break;
      this.#put(child, index);
      index = below;
    }
    this.#put(entry, index);
  }

  #earlierChild(index: number): number {
    const [left, right] = [2 * index + 1, 2 * index + 2];
    const rightAt = this.#entries[right]?.at ?? Number.POSITIVE_INFINITY;
    return rightAt < (this.#entries[left]?.at ?? Number.POSITIVE_INFINITY) ? right : left;
  }

  #put(entry: HeapEntry<Item>, index: number): void {
    this.#entries[index] = entry;
    this.#indexes.set(entry.item, index);
  }
}
