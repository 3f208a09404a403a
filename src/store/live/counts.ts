// The counters of an endpoint: how a change of a job changes them.
import type { JobStatus } from '../../wire/job/job.ts';
import type { StoredEndpoint, StoredJob } from '../stored-records.ts';

/** Additions to the counters of an endpoint. */
export type Counts = Pick<
  StoredEndpoint,
  'inQueue' | 'inProgress' | 'completed' | 'failed' | 'cancelled' | 'timedOut' | 'retried'
>;

/** What a commit changes in the row of an endpoint. `turns`: see GroupTurns; undefined: unchanged. */
export interface CountsRow extends Counts {
  turns?: string | undefined;
}

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
