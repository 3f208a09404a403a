// The input and the result of a decision about a job.
import type { StoredJob } from '../store/store.ts';
import type { QueueSettings } from './settings.ts';

/** What a decision depends on beside the job and the event. */
export interface Moment {
  now: number;
  /** Uniform in [0, 1). */
  random: () => number;
  settings: QueueSettings;
}

export interface Transition {
  job: StoredJob;
  /** Retries to count, automatic and asked for; -1 when one turned out not to be needed. */
  retried: number;
  dropChunks: boolean;
  dropOutput: boolean;
  /** The job is to be deleted with all that belongs to it. */
  removed: boolean;
  /** The worker that runs it has to be told to stop. */
  stopWorker: boolean;
}

/** A transition; or why the event is not allowed in this state. */
export type Decision = Transition | { refused: string };

const NOTHING_ELSE = {
  retried: 0,
  dropChunks: false,
  dropOutput: false,
  removed: false,
  stopWorker: false,
};

/** The job as it becomes, with what else has to happen. */
export function change(job: StoredJob, effects: Partial<Omit<Transition, 'job'>> = {}): Transition {
  return { ...NOTHING_ELSE, ...effects, job: withDueAt(job) };
}

/** Sets when the sweeper has to look at the job next. */
export function withDueAt(job: StoredJob): StoredJob {
  const times = [job.expiresAt];
  if (job.lease && job.lease.lost === null) times.push(job.lease.until);
  if (job.deadlineAt !== null) times.push(job.deadlineAt);
  if (job.delayed) times.push(job.availableAt);
  return { ...job, dueAt: Math.min(...times) };
}

/** IN_PROGRESS under a lease that has not run out. */
export function holdsLiveLease(job: StoredJob): boolean {
  return job.lease !== null && job.status === 'IN_PROGRESS';
}
