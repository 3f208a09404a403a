// Part of lifecycle.ts: decides how long a lease and the deadline of its attempt last, and what extends
// them.
import type { StoredJob } from '../../store/store.ts';
import { isTerminal } from '../../wire/job/job.ts';
import type { QueueSettings } from '../settings.ts';
import { dropReturn } from '../timeline.ts';
import type { Moment } from './transition.ts';

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
  return {
    ...live,
    status: 'IN_PROGRESS',
    delayed: false,
    deadlineAt: Math.max(now, job.startedAt + job.executionTimeoutMs) + settings.timeoutGraceMs,
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
  const timeoutAt = job.startedAt + job.executionTimeoutMs;
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
    deadlineAt: job.deadlineAt === null ? null : extend(job.deadlineAt + uncountedMs),
  };
}
