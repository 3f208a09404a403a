// Items that wait, taken from one owner after the other.

export class OwnerLanes<T> {
  /** Items of each owner, in the order of arrival; the owner to serve next comes first. */
  readonly #lanes = new Map<string, T[]>();

  get isEmpty(): boolean {
    return this.#lanes.size === 0;
  }

  add(owner: string, item: T): void {
    const lane = this.#lanes.get(owner);
    if (lane) lane.push(item);
    else this.#lanes.set(owner, [item]);
  }

  /** Takes the next item; its owner goes to the end of the rotation. */
  take(): T | undefined {
    const next = this.#lanes.entries().next().value;
    if (!next) return undefined;
    const [owner, lane] = next;
    this.#lanes.delete(owner);
    const item = lane.shift();
    if (lane.length > 0) this.#lanes.set(owner, lane);
    return item;
  }
}
