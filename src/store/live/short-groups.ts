// Groups whose ready jobs a window has only up to a certain place, because the groups were at their limit.
import type { StoredJob } from '../stored-records.ts';
import { comparePlaces, type Place, placeOf } from './place.ts';

/** Number of further leases that a group may have; not negative. */
export type GroupCapacity = (group: string) => number;

interface ShortGroup {
  /** The window has all jobs of the group up to this place. */
  extent: Place;
  /** Jobs of the group in the window. */
  held: number;
}

/** Before every job. */
const NOWHERE: Place = { priority: Number.POSITIVE_INFINITY, turn: 0, position: 0 };

/**
 * A group that is not hungry has at least as many jobs in the window as it has capacity. So only a hungry one needs
 * the database.
 */
export class ShortGroups {
  readonly #groups = new Map<string, ShortGroup>();
  /** Groups whose capacity or number of jobs has changed. */
  readonly #hungry = new Set<string>();

  get isEmpty(): boolean {
    return this.#groups.size === 0;
  }

  has(group: string): boolean {
    return this.#groups.has(group);
  }

  /** The window has of the group what is among these jobs, and no more. */
  add(group: string, jobs: readonly StoredJob[]): void {
    let extent = NOWHERE;
    let held = 0;
    for (const job of jobs) {
      if (job.group !== group) continue;
      extent = placeOf(job);
      held++;
    }
    this.#groups.set(group, { extent, held });
    this.#hungry.add(group);
  }

  /** The window has all jobs of the group up to its own end. */
  delete(group: string): void {
    this.#groups.delete(group);
    this.#hungry.delete(group);
  }

  clear(): void {
    this.#groups.clear();
    this.#hungry.clear();
  }

  /** The window, which has these jobs, now ends with the last one. */
  trim(last: Place, jobs: readonly StoredJob[]): void {
    const short = [...this.#groups];
    this.clear();
    // A group that is short behind the end is not short before it.
    for (const [group, { extent }] of short) {
      if (comparePlaces(extent, last) < 0) this.add(group, jobs);
    }
  }

  /** Whether the window has, or may have, a job at this place. */
  covers(job: StoredJob): boolean {
    if (job.group === null) return true;
    const short = this.#groups.get(job.group);
    return !short || comparePlaces(job, short.extent) <= 0;
  }

  count(group: string | null, times: number): void {
    if (group === null) return;
    const short = this.#groups.get(group);
    if (!short) return;
    short.held += times;
    this.#hungry.add(group);
  }

  noteRoom(group: string): void {
    if (this.#groups.has(group)) this.#hungry.add(group);
  }

  noteRooms(): void {
    for (const group of this.#groups.keys()) this.#hungry.add(group);
  }

  findHungry(capacity: GroupCapacity): { group: string; capacity: number } | undefined {
    for (const group of this.#hungry) {
      const free = capacity(group);
      if (free > (this.#groups.get(group)?.held ?? 0)) return { group, capacity: free };
      this.#hungry.delete(group);
    }
    return undefined;
  }
}
