// One endpoint in memory: its counters, its live jobs, and the changes that the database does not have yet.
import type { JobStatus } from '../../wire/job/job.ts';
import type { InlinePayloads } from '../sql/job-row.ts';
import {
  NO_GROUP,
  outgrownNumber,
  type StoredEndpoint,
  type StoredJob,
} from '../stored-records.ts';
import type { GroupCapacity } from './group-queue.ts';
import { holdsValidLease, type LeasedJobs } from './leased-jobs.ts';
import { ReadyGroups } from './ready-groups.ts';

/** A job that changed in this commit. Undefined: it does not exist. */
export interface ChangedJob {
  id: string;
  /** As the database has it. */
  stored: StoredJob | undefined;
  now: StoredJob | undefined;
  /** Small payloads to write with the row. */
  payloads: InlinePayloads;
  /** This commit has put an output, and its rows may be written. */
  hasOutput: boolean;
}

/** Ready jobs that the first read returns: a single take may want no more. */
export const FIRST_WINDOW_JOBS = 16;

const NO_WEIGHTS = {};

export const NO_PAYLOADS: InlinePayloads = {};

export class LiveEndpoint {
  readonly id: string;
  readonly ready = new ReadyGroups();
  /** Most leases of a group, when takeable jobs were asked for last. */
  groupLimit = Number.POSITIVE_INFINITY;
  /** What else limited the leases of groups then. */
  gate: GroupCapacity | undefined;
  terms = 'none';
  /** Complete jobs, as they are now. */
  readonly jobs = new Map<string, StoredJob>();
  /** Jobs that this commit has changed. */
  changed = new Map<string, ChangedJob>();
  /** IDs of the jobs that this commit adds, by idempotency key. */
  newKeys = new Map<string, string>();
  /** Ready jobs to read when more are needed. */
  nextWindowJobs = FIRST_WINDOW_JOBS;
  /** Rows that this commit has read in search of takeable jobs. */
  searchedRows = 0;
  /** Ready jobs in memory when they were counted last. */
  counted = 0;
  /** Numbers of the GPU types that ready jobs may have outgrown, or more. Undefined: not read yet. */
  outgrown: Set<number> | undefined;
  /** The endpoint was removed; nothing of it is left. */
  isRemoved = false;
  readonly #leased: LeasedJobs;
  /** Undefined: not read yet. */
  #endpoint: StoredEndpoint | undefined;
  /** What the database has to add to its counters. */
  #counts = noCounts();

  constructor(id: string, leased: LeasedJobs) {
    this.id = id;
    this.#leased = leased;
  }

  /** A copy; undefined if it must be read. */
  get endpoint(): StoredEndpoint | undefined {
    return this.#endpoint && { ...this.#endpoint };
  }

  set endpoint(endpoint: StoredEndpoint | undefined) {
    this.#endpoint = endpoint && { ...endpoint };
    if (endpoint) this.ready.weights = endpoint.settings.groupWeights ?? NO_WEIGHTS;
  }

  /** Whether no job is queued, as far as is known. */
  get isEmpty(): boolean {
    return this.#endpoint?.inQueue === 0;
  }

  /** Further leases that the group may have. */
  capacity(group: string): number {
    const free =
      group === NO_GROUP
        ? Number.POSITIVE_INFINITY
        : this.groupLimit - this.#leased.countOfGroup(this.id, group);
    return Math.max(0, this.gate ? Math.min(free, this.gate(group)) : free);
  }

  get counts(): Counts | undefined {
    return isZero(this.#counts) ? undefined : this.#counts;
  }

  /** The database has the counts. */
  resetCounts(): void {
    this.#counts = noCounts();
  }

  apply(change: JobChange): ChangedJob {
    count(this.#counts, change);
    if (this.#endpoint) count(this.#endpoint, change);
    const { after, before } = change;
    const id = (after ?? before)?.id ?? '';
    const known = this.changed.get(id);
    const job = known ?? {
      id,
      stored: before,
      now: after,
      payloads: NO_PAYLOADS,
      hasOutput: false,
    };
    job.now = after;
    this.changed.set(id, job);
    if (after) this.jobs.set(id, after);
    else this.jobs.delete(id);
    const group = before?.group ?? null;
    // Before its run ends: it has not been idle.
    if (group !== null && before && holdsValidLease(before)) this.ready.noteRoom(group);
    this.ready.replace(before, after);
    this.#leased.replace(before, after);
    const outgrown = after ? outgrownNumber(after) : 0;
    if (outgrown > 0) this.outgrown?.add(outgrown);
    this.#noteKey(before, after);
    return job;
  }

  #noteKey(before: StoredJob | undefined, after: StoredJob | undefined): void {
    if (!before && after && after.idempotencyKey !== null) {
      this.newKeys.set(after.idempotencyKey, after.id);
    } else if (!after && before && before.idempotencyKey !== null) {
      this.newKeys.delete(before.idempotencyKey);
    }
  }
}

/** Additions to the counters of an endpoint. */
export type Counts = Pick<
  StoredEndpoint,
  'inQueue' | 'inProgress' | 'completed' | 'failed' | 'cancelled' | 'timedOut' | 'retried'
>;

const COUNTERS: Record<JobStatus, keyof Counts> = {
  IN_QUEUE: 'inQueue',
  IN_PROGRESS: 'inProgress',
  COMPLETED: 'completed',
  FAILED: 'failed',
  CANCELLED: 'cancelled',
  TIMED_OUT: 'timedOut',
};

export function noCounts(): Counts {
  return {
    inQueue: 0,
    inProgress: 0,
    completed: 0,
    failed: 0,
    cancelled: 0,
    timedOut: 0,
    retried: 0,
  };
}

/** Counts a change of a job. Live states are counted up and down; terminal states are counted once, on entry. */
export function count(counts: Counts, { after, before, retried }: JobChange): void {
  counts.retried += retried;
  const left = before?.status;
  const entered = after?.status;
  if (left === entered) return;
  if (left === 'IN_QUEUE' || left === 'IN_PROGRESS') counts[COUNTERS[left]] -= 1;
  if (entered) counts[COUNTERS[entered]] += 1;
}

/** `before` is undefined for a new job, `after` for a removed one. */
export interface JobChange {
  before: StoredJob | undefined;
  after: StoredJob | undefined;
  /** Retries to count. */
  retried: number;
}

export function isZero(counts: Counts): boolean {
  return Object.values(counts).every((value) => value === 0);
}
