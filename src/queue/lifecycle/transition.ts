// Types of a decision about a job, and helpers that build its result.
import type { StoredJob } from '../../store/store.ts';
import type { QueueSettings } from '../settings.ts';

/** Inputs of a decision besides the job and the event. */
export interface Moment {
  now: number;
  /** Uniform in [0, 1). */
  random: () => number;
  settings: QueueSettings;
}

export interface Transition {
  job: StoredJob;
  /** Retries to count, automatic and requested ones; -1 undoes one. */
  retried: number;
  dropChunks: boolean;
  dropOutput: boolean;
  /** The job must be deleted with everything that belongs to it. */
  removed: boolean;
  /** The job's worker must stop the job. */
  stopWorker: boolean;
}

/** A transition, or why the event is not allowed in this state. */
export type Decision = Transition | { refused: string };

type Effects = Omit<Transition, 'job'>;

/** Returns the changed job and other effects. */
export function change(job: StoredJob, effects: Partial<Effects> = {}): Transition {
  const { dropChunks = false, dropOutput = false, removed = false } = effects;
  const { retried = 0, stopWorker = false } = effects;
  return { job: withDueAt(job), retried, dropChunks, dropOutput, removed, stopWorker };
}

/** Sets when the sweeper must process the job next. */
export function withDueAt(job: StoredJob): StoredJob {
  const dueAt = findDueAt(job);
  // A job has about fifty fields: each copy counts.
  return dueAt === job.dueAt ? job : { ...job, dueAt };
}

type Limits = Pick<StoredJob, 'availableAt' | 'deadlineAt' | 'delayed' | 'expiresAt' | 'lease'>;

/** When the sweeper must process the job next. A caller that creates a job with it saves `withDueAt` a copy. */
export function findDueAt({ availableAt, deadlineAt, delayed, expiresAt, lease }: Limits): number {
  let dueAt = expiresAt;
  if (lease && lease.lost === null && lease.until < dueAt) dueAt = lease.until;
  if (deadlineAt !== null && deadlineAt < dueAt) dueAt = deadlineAt;
  if (delayed && availableAt < dueAt) dueAt = availableAt;
  return dueAt;
}

/** IN_PROGRESS with an unexpired lease. */
export function holdsLiveLease(job: StoredJob): boolean {
  return job.lease !== null && job.status === 'IN_PROGRESS';
}
