// Counts the GPU time of each endpoint, divided by its weight, so that endpoints that want the same GPUs get fair shares.

/** An endpoint cannot save up more than this of its share, ms: what counts is the last minutes. */
const MOST_BEHIND_MS = 300_000;

/** An endpoint that has GPUs or waits for some. */
export interface GpuUse {
  id: string;
  weight: number;
  gpus: number;
}

export class GpuShares {
  readonly #used = new Map<string, number>();
  #active: readonly GpuUse[] = [];
  #countedAt = 0;

  /** Call this at every change, and again and again meanwhile. @returns by endpoint, ms */
  count(now: number, active: readonly GpuUse[]): ReadonlyMap<string, number> {
    const passedMs = Math.max(0, now - this.#countedAt);
    for (const { gpus, id, weight } of this.#active) {
      this.#used.set(id, (this.#used.get(id) ?? 0) + (gpus * passedMs) / weight);
    }
    this.#countedAt = now;
    this.#admit(active);
    this.#active = active;
    return this.#used;
  }

  forget(id: string): void {
    this.#used.delete(id);
    this.#active = this.#active.filter((each) => each.id !== id);
  }

  /** One that was away has no claim to that time, and owes none of it. */
  #admit(active: readonly GpuUse[]): void {
    const before = new Set(this.#active.map(({ id }) => id));
    const staying = active.flatMap(({ id }) => (before.has(id) ? [this.#used.get(id) ?? 0] : []));
    if (staying.length === 0) this.#used.clear();
    const least = Math.min(...staying, Number.MAX_SAFE_INTEGER);
    const most = Math.max(...staying, 0);
    for (const { id } of active) {
      const floor = before.has(id) ? most - MOST_BEHIND_MS : Math.min(least, most);
      const used = Math.max(this.#used.get(id) ?? 0, floor);
      this.#used.set(id, before.has(id) ? used : Math.min(used, most));
    }
  }
}
