// The ready jobs of one group in one priority, in their order, as far as they are in memory; and the share that the group
// has used.
import { NO_GROUP, outgrownNumber, type StoredJob } from '../stored-records.ts';

/** Before and after every place. */
const NONE = Number.NEGATIVE_INFINITY;
const ALL = Number.POSITIVE_INFINITY;

/**
 * `idle`: without ready jobs. `joining`: had none, and gets its virtual time with the next search. `waiting`: takes may
 * choose it. `held`: it has no capacity.
 */
export type GroupState = 'idle' | 'joining' | 'waiting' | 'held';

export class GroupQueue {
  readonly priority: number;
  /** NO_GROUP for the jobs without one. */
  readonly group: string;
  #jobs: StoredJob[] = [];
  /** Up to this place `#jobs` has all ready jobs of the group. */
  #extent: number;
  /** Fewest jobs to read at once. */
  nextRead = 1;
  state: GroupState = 'idle';
  /** What it has used, GPU ms by its weight; of running jobs what they are expected to use. */
  used = 0;
  weight = 1;
  /** Mean run time of its jobs, ms; undefined: none has ended. */
  meanMs: number | undefined;
  /** Running jobs, what `used` has for them, their GPUs, and the sum of these times their start. */
  running = 0;
  runningMs = 0;
  runningGpus = 0;
  runningSince = 0;
  /** Of PriorityQueue: the order of the groups that wait, and among those that have used as much. */
  key = 0;
  order = 0;
  index = -1;
  /** Jobs that the search under way has chosen. */
  taken = 0;
  /** What `used` has changed by since its row was written, and whether it has a row. */
  unsavedMs = 0;
  hasRow = false;

  /** `hasAll`: it has no ready jobs so far. */
  constructor(priority: number, group: string, { hasAll }: { hasAll: boolean }) {
    this.priority = priority;
    this.group = group;
    this.#extent = hasAll ? ALL : NONE;
  }

  get jobs(): readonly StoredJob[] {
    return this.#jobs;
  }

  get hasAll(): boolean {
    return this.#extent === ALL;
  }

  get mayHaveJobs(): boolean {
    return this.#jobs.length > 0 || !this.hasAll;
  }

  /** From which place on jobs must be read; undefined: from the first one on. */
  get from(): number | undefined {
    return this.#extent === NONE ? undefined : this.#extent;
  }

  has(job: StoredJob): boolean {
    return this.#jobs[this.#find(job)]?.id === job.id;
  }

  /** Adds the job, if it is among those that it has. */
  add(job: StoredJob): boolean {
    if (job.place > this.#extent || this.has(job)) return false;
    this.#jobs.splice(this.#find(job), 0, job);
    return true;
  }

  remove(job: StoredJob): boolean {
    const index = this.#find(job);
    if (this.#jobs[index]?.id !== job.id) return false;
    this.#jobs.splice(index, 1);
    return true;
  }

  /** Adds what the database has from the end on, sorted. @returns the added ones */
  extend(jobs: readonly StoredJob[], { isAll }: { isAll: boolean }): StoredJob[] {
    const added = jobs.filter((job) => !this.has(job));
    const last = jobs.at(-1);
    this.#extent = isAll || !last ? ALL : Math.max(this.#extent, last.place);
    for (const job of added) this.#jobs.splice(this.#find(job), 0, job);
    // Many places may be equal.
    this.nextRead = added.length === 0 ? 2 * this.nextRead + 1 : 1;
    return added;
  }

  /** Keeps at most `kept` jobs. @returns the others */
  trim(kept: number): StoredJob[] {
    if (this.#jobs.length <= kept) return [];
    const dropped = this.#jobs.splice(kept);
    this.#extent = this.#jobs.at(-1)?.place ?? NONE;
    return dropped;
  }

  /** The database has no other ready jobs of the group. */
  noteAll(): this {
    this.#extent = ALL;
    return this;
  }

  /** Index of the job, or where it belongs. */
  #find(job: StoredJob): number {
    let low = 0;
    let high = this.#jobs.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#jobs[middle]?.place ?? ALL) < job.place) low = middle + 1;
      else high = middle;
    }
    while (low < this.#jobs.length) {
      const other = this.#jobs[low];
      // Places may be equal after the clock was set back.
      if (!other || other.id === job.id || other.place !== job.place) break;
      low++;
    }
    return low;
  }
}

/** Number of further leases that a group may have; not negative. */
export type GroupCapacity = (group: string) => number;

/** NO_GROUP for a job without a group. */
export function groupOf({ group }: Pick<StoredJob, 'group'>): string {
  return group ?? NO_GROUP;
}

/** Whether any worker may take the job. */
export function isReady(job: StoredJob): boolean {
  return job.status === 'IN_QUEUE' && !job.delayed && outgrownNumber(job) === 0;
}

/** Where a job stands among the jobs of its group. */
export type Rank = Pick<StoredJob, 'priority' | 'place'>;

/** Higher priorities first, then lower places. */
export function compareRanks(a: Rank, b: Rank): number {
  return b.priority - a.priority || a.place - b.place;
}
