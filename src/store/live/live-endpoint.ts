// What is in memory of one endpoint: its counters, its live jobs, and what the database does not have yet.
import type { InlinePayloads } from '../job-row.ts';
import type { StoredEndpoint, StoredJob } from '../stored-records.ts';
import { type Counts, count, isZero, type JobChange, noCounts } from './counts.ts';
import { ReadyWindow } from './ready-window.ts';

/** A job that changed in this commit. Undefined: it does not exist. */
export interface Unwritten {
  /** As the database has it. */
  stored: StoredJob | undefined;
  now: StoredJob | undefined;
  /** Small payloads to write with the row. */
  payloads: InlinePayloads;
}

export const NONE: InlinePayloads = {};

export class LiveEndpoint {
  readonly id: string;
  readonly window = new ReadyWindow();
  /** Jobs that the database has as they are here, and all jobs in `unwritten`. */
  readonly jobs = new Map<string, StoredJob>();
  /** All jobs with a lease, once they are loaded. */
  readonly leased = new Map<string, StoredJob>();
  readonly unwritten = new Map<string, Unwritten>();
  /** Jobs of the window when they were counted last. */
  counted = 0;
  /** The endpoint was removed; nothing of it is left. */
  isRemoved = false;
  /** Undefined: not read yet. */
  #endpoint: StoredEndpoint | undefined;
  /** What the database has to add to its counters. */
  #counts = noCounts();

  constructor(id: string) {
    this.id = id;
  }

  /** A copy; undefined if it has to be read. */
  get endpoint(): StoredEndpoint | undefined {
    return this.#endpoint && { ...this.#endpoint };
  }

  set endpoint(endpoint: StoredEndpoint | undefined) {
    this.#endpoint = endpoint && { ...endpoint };
  }

  get counts(): Counts | undefined {
    return isZero(this.#counts) ? undefined : this.#counts;
  }

  /** The database has the counts. @returns how that is undone */
  resetCounts(): () => void {
    const written = this.#counts;
    this.#counts = noCounts();
    return () => {
      this.#counts = written;
    };
  }

  apply(change: JobChange): void {
    this.#replace(change.before, change.after);
    this.#count(change, 1);
  }

  undo(change: JobChange): void {
    this.#replace(change.after, change.before);
    this.#count(change, -1);
  }

  #count(change: JobChange, times: 1 | -1): void {
    count(this.#counts, change, times);
    if (this.#endpoint) count(this.#endpoint, change, times);
  }

  #replace(before: StoredJob | undefined, after: StoredJob | undefined): void {
    const id = (after ?? before)?.id;
    if (id === undefined) return;
    const known = this.unwritten.get(id);
    if (known) known.now = after;
    else this.unwritten.set(id, { stored: before, now: after, payloads: NONE });
    if (after) this.jobs.set(id, after);
    else this.jobs.delete(id);
    if (after?.lease) this.leased.set(id, after);
    else this.leased.delete(id);
    this.window.replace(before, after);
  }
}
