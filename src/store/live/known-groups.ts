// The last turns of the groups that submitted jobs recently, over all endpoints: a bounded number.
import type { GroupTurns } from './group-turns.ts';

/** Groups kept: about 200 bytes each. */
const KEPT = 50_000;

export interface KnownGroup {
  owner: GroupTurns;
  /** Last turn of the group's jobs. */
  last: number;
  /** The job with the last turn left the queue otherwise than by a lease. */
  isStale: boolean;
  /** Number of the knowledge of `owner`. */
  version: number;
}

export class KnownGroups {
  /** The one that was put last is last. */
  readonly #groups = new Map<string, KnownGroup>();
  readonly #kept: number;

  constructor(kept = KEPT) {
    this.#kept = kept;
  }

  find(owner: GroupTurns, name: string): KnownGroup | undefined {
    const group = this.#groups.get(name);
    // Of an endpoint that was removed and created again.
    return group?.owner === owner ? group : undefined;
  }

  put(name: string, group: KnownGroup): void {
    this.#groups.delete(name);
    this.#groups.set(name, group);
  }

  delete(name: string): void {
    this.#groups.delete(name);
  }

  /** Between two commits: within one, the database may not have the last turn yet. */
  trim(): void {
    if (this.#groups.size <= this.#kept) return;
    for (const [name, { owner }] of this.#groups) {
      this.#groups.delete(name);
      owner.hasAllGroups = false;
      if (this.#groups.size <= this.#kept) return;
    }
  }
}
