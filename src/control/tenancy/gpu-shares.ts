// Counts GPU time, so that those who want the same GPUs get fair shares: users of a GPU type first, and the endpoints of each user
// by their weights.

import type { GpuUser } from './gpu-plan.ts';

/** Nobody can save up more than this of its share, ms: what counts is the last minutes. */
const MOST_BEHIND_MS = 300_000;

/** An endpoint has, or waits for, GPUs of a type; it may do so more than once. */
export interface GpuUse {
  userId: string;
  endpointId: string;
  weight: number;
  gpuType: string;
  /** 0: it waits. */
  gpus: number;
}

export class GpuShares {
  readonly #users = new Map<string, Shares>();
  readonly #endpoints = new Map<string, Shares>();

  /** Call this at every change, and again and again meanwhile. */
  count(now: number, active: readonly GpuUse[]): void {
    countGroups(this.#users, now, active, ({ gpuType, gpus, userId }) => {
      return { group: gpuType, id: userId, weight: 1, gpus };
    });
    countGroups(this.#endpoints, now, active, ({ endpointId, gpus, userId, weight }) => {
      return { group: userId, id: endpointId, weight, gpus };
    });
  }

  forget(endpointId: string): void {
    for (const shares of this.#endpoints.values()) shares.forget(endpointId);
  }

  /** Compared with the user's other endpoints, divided by its weight, ms. */
  ofEndpoint(userId: string, endpointId: string): number {
    return this.#endpoints.get(userId)?.of(endpointId) ?? 0;
  }

  /** Users who have GPUs of a type or wait for some. */
  listUsers(): GpuUser[] {
    return [...this.#users].flatMap(([gpuType, shares]) =>
      shares.list().map(({ id: userId, usedMs }) => ({ userId, gpuType, usedMs })),
    );
  }
}

function countGroups(
  groups: Map<string, Shares>,
  now: number,
  active: readonly GpuUse[],
  describe: (use: GpuUse) => Use & { group: string },
): void {
  const byGroup = Map.groupBy(active.map(describe), ({ group }) => group);
  // Those that were away have no claim to that time.
  for (const group of groups.keys()) if (!byGroup.has(group)) groups.delete(group);
  for (const [group, uses] of byGroup) {
    const shares = groups.get(group) ?? new Shares();
    groups.set(group, shares);
    shares.count(now, uses);
  }
}

interface Use {
  id: string;
  weight: number;
  gpus: number;
}

class Shares {
  readonly #used = new Map<string, number>();
  #active: readonly Use[] = [];
  #countedAt = 0;

  of(id: string): number {
    return this.#used.get(id) ?? 0;
  }

  list(): { id: string; usedMs: number }[] {
    return [...new Set(this.#active.map(({ id }) => id))].map((id) => ({
      id,
      usedMs: this.of(id),
    }));
  }

  count(now: number, active: readonly Use[]): void {
    const passedMs = Math.max(0, now - this.#countedAt);
    for (const { gpus, id, weight } of this.#active) {
      this.#used.set(id, (this.#used.get(id) ?? 0) + (gpus * passedMs) / weight);
    }
    this.#countedAt = now;
    this.#admit(active);
    this.#active = active;
  }

  forget(id: string): void {
    this.#used.delete(id);
    this.#active = this.#active.filter((each) => each.id !== id);
  }

  /** One that was away has no claim to that time, and owes none of it. */
  #admit(active: readonly Use[]): void {
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
