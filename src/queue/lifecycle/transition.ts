// Types of a decision about a job, helpers that build its result, and the terms of its lease.
import type { JobLinks, StoredJob } from '../../store/store.ts';
import { isTerminal } from '../../wire/job/job.ts';
import type { QueueSettings } from '../settings.ts';
import { addNote, dropReturn, nameAttempt } from '../timeline.ts';

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

type Limits = Pick<StoredJob, 'availableAt' | 'deadlineAt' | 'delayed' | 'expiresAt' | 'lease'> &
  Partial<Pick<StoredJob, 'suspendedAt' | 'suspendedMs'>>;

/** Of one attempt: nobody else ends that of a worker that never goes on. Far above the longest `maxSuspendedSeconds`, a day. */
export const MAX_SUSPENDED_MS = 7 * 86_400_000;

/** When the sweeper must process the job next. A caller that creates a job with it saves `withDueAt` a copy. */
export function findDueAt({
  availableAt,
  deadlineAt,
  delayed,
  expiresAt,
  lease,
  suspendedAt = null,
  suspendedMs = 0,
}: Limits): number {
  // The other limits stand still. The lease does not: its worker renews it.
  if (suspendedAt !== null) {
    return Math.min(lease?.until ?? suspendedAt, suspendedAt + MAX_SUSPENDED_MS - suspendedMs);
  }
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

/**
 * Limit of `extendDeadline`: an attempt ends at most this many times `timeoutGraceMs` after its
 * timeout, even if its worker keeps reporting.
 */
const MAX_GRACES = 30;

/** Extends the lease; also undoes its expiry if no other worker has taken the job yet. */
export function renewed(
  job: StoredJob,
  { now, settings }: Moment,
  incarnation?: number,
): StoredJob {
  const { lease } = job;
  if (!lease || isTerminal(job.status)) return job;
  const live: StoredJob = {
    ...job,
    deadlineAt: extendDeadline(job, now, settings),
    lease: {
      ...lease,
      incarnation: incarnation ?? lease.incarnation,
      until: now + settings.leaseMs,
      started: true,
      lost: null,
    },
  };
  if (lease.lost === null || job.startedAt === null) return live;
  const timeoutAt = Math.max(now, job.startedAt + job.executionTimeoutMs + job.suspendedMs);
  return {
    ...live,
    status: 'IN_PROGRESS',
    delayed: false,
    // Whatever message revives the lease: an attempt that is over cannot time out.
    deadlineAt: lease.delivering ? null : timeoutAt + settings.timeoutGraceMs,
    failures: job.failures - (lease.lost === 'failure' ? 1 : 0),
    releases: job.releases - (lease.lost === 'release' ? 1 : 0),
    history: lease.lost === 'failure' ? job.history.slice(0, -1) : job.history,
    notes: lease.lost === 'release' ? dropReturn(job) : job.notes,
  };
}

/**
 * Extends the deadline of an attempt whose worker is connected: the worker enforces the timeout itself
 * and delivers the outcome, perhaps over a slow connection. The queue ends the job only if the worker
 * falls silent or takes far too long.
 */
function extendDeadline(job: StoredJob, now: number, settings: QueueSettings): number | null {
  if (job.deadlineAt === null || job.startedAt === null) return job.deadlineAt;
  if (job.suspendedAt !== null) return job.deadlineAt;
  const timeoutAt = job.startedAt + job.executionTimeoutMs + job.suspendedMs;
  const last = timeoutAt + MAX_GRACES * settings.timeoutGraceMs;
  return Math.max(job.deadlineAt, Math.min(now + settings.timeoutGraceMs, last));
}

/** Correction of the retry counter when a renewal undoes an expiry that counted as a retry. */
export function revivedRetries(job: StoredJob): number {
  return job.lease?.lost === 'failure' && !isTerminal(job.status) ? -1 : 0;
}

/** `uncountedMs`: part of the absence that must not count against the deadline. */
export function extendAfterAbsence(
  job: StoredJob,
  uncountedMs: number,
  { now, settings }: Moment,
): StoredJob {
  const extend = (time: number) => Math.max(time, now) + settings.leaseMs;
  // A later expiry was written before the clock was set back: no lease lasts that long.
  const until = Math.min(job.lease?.until ?? now, now + settings.leaseMs);
  return {
    ...job,
    lease: job.lease && { ...job.lease, until: extend(until) },
    ...(job.suspendedAt === null && {
      deadlineAt: job.deadlineAt === null ? null : extend(job.deadlineAt + uncountedMs),
    }),
  };
}

/** The attempt stands still in the middle of its work. A second call has no effect. */
export function suspend(job: StoredJob, now: number): StoredJob {
  if (job.status !== 'IN_PROGRESS' || job.suspendedAt !== null) return job;
  if (job.suspendedMs >= MAX_SUSPENDED_MS) return job;
  const note = { at: now, event: 'suspended', ...nameAttempt(job) } as const;
  const suspensions = job.suspensions + 1;
  return { ...job, suspendedAt: now, suspensions, notes: addNote(job.notes, note) };
}

/** The attempt goes on, or ends: its limits move by the time for which they stood still. A second call has no effect. */
export function resume(job: StoredJob, now: number): StoredJob {
  const { deadlineAt, expiresAt, notes, suspendedAt, suspendedMs } = job;
  if (suspendedAt === null) return job;
  const ms = Math.min(Math.max(0, now - suspendedAt), MAX_SUSPENDED_MS - suspendedMs);
  const note = { at: now, event: 'resumed', ...nameAttempt(job), waitedMs: ms } as const;
  return {
    ...job,
    suspendedAt: null,
    suspendedMs: suspendedMs + ms,
    deadlineAt: deadlineAt === null ? null : deadlineAt + ms,
    expiresAt: expiresAt + ms,
    notes: addNote(notes, note),
  };
}

/** Without what a handler waits for. */
export function dropWait(links: JobLinks): JobLinks {
  const { wait, ...rest } = links;
  return wait ? { ...rest, parents: links.parents.filter(({ step }) => !step) } : links;
}
