// A map and a set whose entries come and go for as long as the process lives: jobs, calls, connections.
//
// A `Map` or `Set` replaces its table when it is full. The replaced table keeps its entries and refers to the next
// table. Once one of these tables is in V8's old generation, every later table and all entries of each count as alive
// until the next full collection, so V8 copies garbage. Here the map itself is replaced before a table gets old.

/** Fewer than V8 removes between two collections of its young generation, with 10 KB for each entry. */
const REPLACE_AFTER = 64;

/**
 * A `Map` for entries that come and go. An iteration that has begun must not go on after `set`: it might return
 * entries that were removed since.
 */
export class TransientMap<K, V> {
  #map = new Map<K, V>();
  #removed = 0;

  get size(): number {
    return this.#map.size;
  }

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  has(key: K): boolean {
    return this.#map.has(key);
  }

  set(key: K, value: V): void {
    if (this.#removed >= REPLACE_AFTER && this.#removed >= this.#map.size) {
      this.#map = new Map(this.#map);
      this.#removed = 0;
    }
    this.#map.set(key, value);
  }

  delete(key: K): boolean {
    const isFound = this.#map.delete(key);
    if (isFound) this.#removed++;
    return isFound;
  }

  clear(): void {
    this.#map = new Map();
    this.#removed = 0;
  }

  keys(): MapIterator<K> {
    return this.#map.keys();
  }

  values(): MapIterator<V> {
    return this.#map.values();
  }

  [Symbol.iterator](): MapIterator<[K, V]> {
    return this.#map[Symbol.iterator]();
  }
}

/** A `Set` for entries that come and go. The rule for iterations of `TransientMap` applies to `add`. */
export class TransientSet<T> {
  readonly #entries = new TransientMap<T, true>();

  get size(): number {
    return this.#entries.size;
  }

  has(entry: T): boolean {
    return this.#entries.has(entry);
  }

  add(entry: T): void {
    this.#entries.set(entry, true);
  }

  delete(entry: T): boolean {
    return this.#entries.delete(entry);
  }

  clear(): void {
    this.#entries.clear();
  }

  [Symbol.iterator](): MapIterator<T> {
    return this.#entries.keys();
  }
}
