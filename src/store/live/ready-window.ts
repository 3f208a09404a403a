// The ready jobs of one endpoint that are next, in their order, as far as they are in memory.
import { NO_GROUP, outgrownNumber, type StoredJob } from '../stored-records.ts';

/**
 * Which ready jobs the window has: `none`, `all`, or those up to a place. The others are only in the
 * database.
 */
type Extent = 'none' | 'all' | Rank;

interface Selection {
  jobs: StoredJob[];
  /** Jobs that were passed over, because their group is at its limit. */
  passed: StoredJob[];
}

export class ReadyWindow {
  #jobs: StoredJob[] = [];
  #extent: Extent = 'none';
  /** Groups at their limit, of which the window lacks jobs. */
  readonly #short = new ShortGroups();

  get size(): number {
    return this.#jobs.length;
  }

  get hasAll(): boolean {
    return this.#extent === 'all';
  }

  /** The window has all jobs up to its extent, of groups at their limit too. */
  get isWhole(): boolean {
    return this.#short.isEmpty;
  }

  get extent(): Extent {
    return this.#extent;
  }

  /** The best jobs, the best first; fewer than `limit` only if the window has no more. */
  first(limit: number): StoredJob[] {
    return this.#jobs.slice(0, limit);
  }

  /** The best jobs that fit into the capacity of their groups, the best first. */
  select(limit: number, capacity: GroupCapacity): Selection {
    const left = new Map<string, number>();
    const jobs: StoredJob[] = [];
    const passed: StoredJob[] = [];
    for (const job of this.#jobs) {
      if (jobs.length === limit) break;
      const group = groupOf(job);
      const free = left.get(group) ?? capacity(group);
      if (free <= 0) {
        passed.push(job);
        continue;
      }
      left.set(group, free - 1);
      jobs.push(job);
    }
    return { jobs, passed };
  }

  has(job: StoredJob): boolean {
    return this.#jobs[this.#find(job)]?.id === job.id;
  }

  /** Replaces the content by what the database has. `jobs` are sorted. */
  load(jobs: StoredJob[], { isAll }: { isAll: boolean }): void {
    const last = jobs.at(-1);
    this.#short.clear();
    this.#jobs = jobs;
    this.#extent = isAll || !last ? 'all' : rankOf(last);
  }

  /**
   * Adds what the database has from the end of the window on, sorted, without jobs of groups that have no capacity for
   * them. @returns the added ones
   */
  extend(
    jobs: readonly StoredJob[],
    capacity: GroupCapacity,
    { isAll }: { isAll: boolean },
  ): StoredJob[] {
    const held = this.#countGroups();
    const last = jobs.at(-1);
    const added: StoredJob[] = [];
    for (const job of jobs) {
      if (this.has(job)) continue;
      const group = groupOf(job);
      if (this.#short.has(group)) continue;
      const count = held.get(group) ?? 0;
      if (count >= capacity(group)) {
        this.#short.add(group, this.#jobs);
        continue;
      }
      held.set(group, count + 1);
      this.#jobs.splice(this.#find(job), 0, job);
      added.push(job);
    }
    if (isAll) this.#extent = 'all';
    else if (last) this.#extent = rankOf(last);
    return added;
  }

  /** Drops the jobs for which their groups have no capacity. @returns those */
  pass(capacity: GroupCapacity): readonly StoredJob[] {
    const { passed } = this.select(Number.POSITIVE_INFINITY, capacity);
    const dropped = new Set(passed);
    this.#jobs = this.#jobs.filter((job) => !dropped.has(job));
    for (const group of new Set(passed.map(groupOf))) this.#short.add(group, this.#jobs);
    return passed;
  }

  /** A group that has capacity for more jobs than the window has of it, with that capacity. */
  findShort(capacity: GroupCapacity): { group: string; capacity: number } | undefined {
    return this.#short.findHungry(capacity);
  }

  /** Adds the first jobs of the group that the database has, sorted. @returns the added ones */
  fill(group: string, jobs: readonly StoredJob[], { isAll }: { isAll: boolean }): StoredJob[] {
    const near = jobs.filter((job) => this.#isWithin(job));
    const added = near.filter((job) => !this.has(job));
    for (const job of added) this.#jobs.splice(this.#find(job), 0, job);
    // The window's other end comes first: it has all of the group's jobs up to there.
    if (isAll || near.length < jobs.length) this.#short.delete(group);
    else this.#short.add(group, this.#jobs);
    return added;
  }

  /** The group has more capacity, or fewer jobs in the window than the window has counted. */
  noteRoom(group: string): void {
    this.#short.noteRoom(group);
  }

  /** All groups have another capacity. */
  noteRooms(): void {
    this.#short.noteRooms();
  }

  /** Takes the change of a job into account. A job behind the window's end stays outside. */
  replace(before: StoredJob | undefined, after: StoredJob | undefined): void {
    if (before && isReady(before)) this.#remove(before);
    if (after && isReady(after) && this.#covers(after)) {
      this.#jobs.splice(this.#find(after), 0, after);
      this.#short.count(groupOf(after), 1);
    }
  }

  /** Keeps at most `kept` jobs. @returns the others */
  trim(kept: number): StoredJob[] {
    if (this.#jobs.length <= kept) return [];
    const dropped = this.#jobs.splice(kept);
    const last = this.#jobs.at(-1);
    this.#extent = last ? rankOf(last) : 'none';
    if (last) this.#short.trim(last, this.#jobs);
    else this.#short.clear();
    return dropped;
  }

  /** Returns its jobs. It must be loaded again. */
  drop(): StoredJob[] {
    this.#extent = 'none';
    this.#short.clear();
    return this.#jobs.splice(0);
  }

  #countGroups(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const job of this.#jobs) counts.set(groupOf(job), (counts.get(groupOf(job)) ?? 0) + 1);
    return counts;
  }

  #isWithin(job: StoredJob): boolean {
    if (this.#extent === 'all') return true;
    return this.#extent !== 'none' && compareRanks(job, this.#extent) <= 0;
  }

  #covers(job: StoredJob): boolean {
    return this.#isWithin(job) && this.#short.covers(job);
  }

  #remove(job: StoredJob): void {
    if (!this.#splice(job)) return;
    this.#short.count(groupOf(job), -1);
  }

  #splice(job: StoredJob): boolean {
    const index = this.#find(job);
    if (this.#jobs[index]?.id !== job.id) return false;
    this.#jobs.splice(index, 1);
    return true;
  }

  /** Index of the job, or where it belongs. */
  #find(job: StoredJob): number {
    let low = 0;
    let high = this.#jobs.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = this.#jobs[middle];
      if (other && compareRanks(other, job) < 0) low = middle + 1;
      else high = middle;
    }
    while (low < this.#jobs.length) {
      const other = this.#jobs[low];
      // Positions may be equal after the clock was set back.
      if (!other || other.id === job.id || compareRanks(other, job) !== 0) break;
      low++;
    }
    return low;
  }
}

/** NO_GROUP for a job without a group. */
export function groupOf({ group }: Pick<StoredJob, 'group'>): string {
  return group ?? NO_GROUP;
}

/** Whether any worker may take the job. */
export function isReady(job: StoredJob): boolean {
  return job.status === 'IN_QUEUE' && !job.delayed && outgrownNumber(job) === 0;
}

/** Where a ready job stands. */
export type Rank = Pick<StoredJob, 'priority' | 'turn' | 'position'>;

/** The order of the ready jobs of an endpoint: higher priorities first, then lower turns, then lower positions. */
export function compareRanks(a: Rank, b: Rank): number {
  return b.priority - a.priority || a.turn - b.turn || a.position - b.position;
}

/** Without the rest of the job, which would stay in memory. */
export function rankOf({ position, priority, turn }: Rank): Rank {
  return { position, priority, turn };
}

/** Number of further leases that a group may have; not negative. */
export type GroupCapacity = (group: string) => number;

interface ShortGroup {
  /** The window has all jobs of the group up to this place. */
  extent: Rank;
  /** Jobs of the group in the window. */
  held: number;
}

/** Before every job. */
const NOWHERE: Rank = { priority: Number.POSITIVE_INFINITY, turn: 0, position: 0 };

/**
 * Groups whose ready jobs a window has only up to a certain place, because the groups were at their limit. A group
 * that is not hungry has at least as many jobs in the window as it has capacity. So only a hungry one needs the
 * database.
 */
class ShortGroups {
  readonly #groups = new Map<string, ShortGroup>();
  /** Groups whose capacity or number of jobs has changed. */
  readonly #hungry = new Set<string>();

  get isEmpty(): boolean {
    return this.#groups.size === 0;
  }

  has(group: string): boolean {
    return this.#groups.has(group);
  }

  /** Of the group, the window has only those of these jobs. */
  add(group: string, jobs: readonly StoredJob[]): void {
    let extent = NOWHERE;
    let held = 0;
    for (const job of jobs) {
      if (groupOf(job) !== group) continue;
      extent = rankOf(job);
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
  trim(last: Rank, jobs: readonly StoredJob[]): void {
    const short = [...this.#groups];
    this.clear();
    // A group that is short behind the end is not short before it.
    for (const [group, { extent }] of short) {
      if (compareRanks(extent, last) < 0) this.add(group, jobs);
    }
  }

  /** Whether the window has, or may have, a job at this place. */
  covers(job: StoredJob): boolean {
    const short = this.#groups.get(groupOf(job));
    return !short || compareRanks(job, short.extent) <= 0;
  }

  count(group: string, times: number): void {
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
