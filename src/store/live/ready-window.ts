// The ready jobs of one endpoint that are next, in their order, as far as they are in memory.
import type { StoredJob } from '../stored-records.ts';

/** Where a ready job stands: higher priorities first, then lower positions. */
export type Place = Pick<StoredJob, 'priority' | 'position'>;

/**
 * Which ready jobs the window has: `none`, `all`, or those up to a place. The others are only in the
 * database.
 */
export type Extent = 'none' | 'all' | Place;

export class ReadyWindow {
  #jobs: StoredJob[] = [];
  #extent: Extent = 'none';

  get size(): number {
    return this.#jobs.length;
  }

  get hasAll(): boolean {
    return this.#extent === 'all';
  }

  /** The best jobs, the best first; fewer than `limit` only if the window has no more. */
  first(limit: number): StoredJob[] {
    return this.#jobs.slice(0, limit);
  }

  has(job: StoredJob): boolean {
    return this.#jobs[this.#find(job)]?.id === job.id;
  }

  /** Replaces the content by what the database has. `jobs` are sorted. */
  load(jobs: StoredJob[], { isAll }: { isAll: boolean }): void {
    const last = jobs.at(-1);
    this.#jobs = jobs;
    this.#extent = isAll || !last ? 'all' : placeOf(last);
  }

  /** Takes the change of a job into account. A job behind the window's end stays outside. */
  replace(before: StoredJob | undefined, after: StoredJob | undefined): void {
    if (before && isReady(before)) this.#remove(before);
    if (after && isReady(after) && this.#covers(after)) {
      this.#jobs.splice(this.#find(after), 0, after);
    }
  }

  /** Keeps at most `kept` jobs. @returns the others */
  trim(kept: number): StoredJob[] {
    if (this.#jobs.length <= kept) return [];
    const dropped = this.#jobs.splice(kept);
    const last = this.#jobs.at(-1);
    this.#extent = last ? placeOf(last) : 'none';
    return dropped;
  }

  /** Returns what it had. It has to be loaded again. */
  drop(): StoredJob[] {
    this.#extent = 'none';
    return this.#jobs.splice(0);
  }

  #covers(job: StoredJob): boolean {
    if (this.#extent === 'all') return true;
    return this.#extent !== 'none' && compare(job, this.#extent) <= 0;
  }

  #remove(job: StoredJob): void {
    const index = this.#find(job);
    if (this.#jobs[index]?.id === job.id) this.#jobs.splice(index, 1);
  }

  /** Index of the job, or where it belongs. */
  #find(job: StoredJob): number {
    let low = 0;
    let high = this.#jobs.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = this.#jobs[middle];
      if (other && compare(other, job) < 0) low = middle + 1;
      else high = middle;
    }
    while (low < this.#jobs.length) {
      const other = this.#jobs[low];
      // Positions may be equal after the clock was set back.
      if (!other || other.id === job.id || compare(other, job) !== 0) break;
      low++;
    }
    return low;
  }
}

export function isReady(job: StoredJob): boolean {
  return job.status === 'IN_QUEUE' && !job.delayed;
}

function compare(a: Place, b: Place): number {
  return b.priority - a.priority || a.position - b.position;
}

function placeOf({ position, priority }: StoredJob): Place {
  return { position, priority };
}
