// The last turns of the groups that submitted jobs recently, over all endpoints: a bounded number.
import type { GroupTurns } from './group-turns.ts';

/** Groups kept: about 200 bytes each. */
const KEPT = 50_000;
/** Share of these that may be too many for a moment: not each commit sorts the endpoints. */
const EXCESS = 0.1;

export interface KnownGroup {
  /** Last turn of the group's jobs. */
  last: number;
  /** The job with the last turn left the queue otherwise than by a lease. */
  isStale: boolean;
  /** Number of the knowledge of the endpoint's turns. */
  version: number;
}

export class KnownGroups {
  /** Of each endpoint, by name; the one that was put last is last. */
  readonly #owners = new Map<GroupTurns, Map<string, KnownGroup>>();
  readonly #kept: number;
  #size = 0;

  constructor(kept = KEPT) {
    this.#kept = kept;
  }

  find(owner: GroupTurns, name: string): KnownGroup | undefined {
    return this.#owners.get(owner)?.get(name);
  }

  put(owner: GroupTurns, name: string, group: KnownGroup): void {
    this.delete(owner, name);
    const groups = this.#owners.get(owner) ?? new Map<string, KnownGroup>();
    this.#owners.set(owner, groups.set(name, group));
    this.#size += 1;
  }

  delete(owner: GroupTurns, name: string): void {
    const groups = this.#owners.get(owner);
    if (!groups?.delete(name)) return;
    this.#size -= 1;
    if (groups.size === 0) this.#owners.delete(owner);
  }

  /** Its endpoint was removed. */
  forget(owner: GroupTurns): void {
    this.#size -= this.#owners.get(owner)?.size ?? 0;
    this.#owners.delete(owner);
  }

  /**
   * Between two commits: within one, the database may not have the last turn yet. The endpoints have equal shares, so
   * one with many groups takes none of the others'.
   */
  trim(): void {
    if (this.#size <= this.#kept * (1 + EXCESS)) return;
    const smallestFirst = [...this.#owners].sort(([, a], [, b]) => a.size - b.size);
    let left = this.#kept;
    for (const [index, [owner, { size }]] of smallestFirst.entries()) {
      const kept = Math.min(size, Math.floor(left / (smallestFirst.length - index)));
      left -= kept;
      if (kept < size) this.#shorten(owner, size - kept);
    }
  }

  /** Drops the groups that were put first. */
  #shorten(owner: GroupTurns, count: number): void {
    owner.hasAllGroups = false;
    for (const name of [...(this.#owners.get(owner)?.keys() ?? [])].slice(0, count)) {
      this.delete(owner, name);
    }
  }
}
