// Decides what happens to a job when its attempt ends: part of lifecycle.ts.
import { backoffMs } from '../base/backoff.ts';
import type { StoredJob } from '../store/store.ts';
import type { AttemptError, ErrorCode, FailedAttempt, TerminalStatus } from '../wire/job.ts';
import { boundHistoryMessage } from './outcome-bounds.ts';
import { hasForeignFormat } from './records.ts';
import { change, holdsLiveLease, type Moment, type Transition } from './transition.ts';

interface FailOptions {
  /** No further attempt. */
  final?: boolean;
  /** Wait before the next attempt, ms. Default: by the number of failures. */
  waitMs?: number | undefined;
}

/** A failure that counts: the job is retried after a wait, or FAILED. */
export function fail(
  job: StoredJob,
  error: AttemptError,
  options: FailOptions,
  moment: Moment,
): Transition {
  const failed = withFailure(job, error, moment);
  if (options.final || failed.failures >= job.maxAttempts || wouldRepeatStream(job)) {
    return change(settle(failed, 'FAILED', moment, error));
  }
  const { random, settings } = moment;
  const waitMs = options.waitMs ?? backoffMs(failed.failures, { ...settings.retry, random });
  return change(requeue(failed, waitMs, moment), { retried: 1 });
}

/**
 * An attempt that ended through no fault of its own: the job returns to its place, uncounted up to
 * a limit.
 */
export function release(job: StoredJob, moment: Moment): Transition {
  if (wouldRepeatStream(job)) return endStream(job, moment);
  const { maxReleases } = moment.settings;
  if (job.releases < maxReleases) {
    return change(requeue({ ...job, releases: job.releases + 1 }, 0, moment));
  }
  const error: AttemptError = {
    code: 'released_too_often',
    message: `workers released the job more than ${maxReleases} times`,
  };
  return fail(job, error, {}, moment);
}

/**
 * Clients of another record format do not learn that a stream starts over. Once one of them may
 * have received chunks of an attempt, another attempt would send those chunks again.
 */
function wouldRepeatStream({ attachment, attempt, cursorAttempt }: StoredJob): boolean {
  return hasForeignFormat(attachment) && cursorAttempt === attempt;
}

function endStream(job: StoredJob, moment: Moment): Transition {
  const error: AttemptError = {
    code: 'released_too_often',
    message: 'the worker released the job after the client had received a part of its stream',
  };
  return fail(job, error, { final: true }, moment);
}

/** Error codes of attempts that took others down with them. */
const RUINOUS: ReadonlySet<ErrorCode> = new Set([
  'thread_crashed',
  'handler_exited',
  'uncaught_exception',
  'unhandled_rejection',
  'out_of_memory',
  'memory_limit_exceeded',
]);

/** A job whose attempt took its thread down runs alone next, because it may do so again. */
export function isolate(job: StoredJob, code: ErrorCode): StoredJob {
  return RUINOUS.has(code) ? { ...job, solo: true } : job;
}

/** Attempts of a job that others may take down before it runs alone. */
const MAX_RUINED = 3;

/** A job must not end FAILED because of its neighbours. */
export function shelter(job: StoredJob): StoredJob {
  return job.releases + 1 >= MAX_RUINED ? { ...job, solo: true } : job;
}

/**
 * One of several jobs brought a thread or process down, and it is unknown which: the job returns to
 * its place, uncounted, and runs alone next. A job that was already alone counts.
 */
export function suspect(job: StoredJob, moment: Moment): Transition {
  if (job.solo || wouldRepeatStream(job)) return release(job, moment);
  return change(requeue({ ...job, solo: true }, 0, moment));
}

const LOSSES: ReadonlySet<ErrorCode> = new Set(['lease_expired', 'worker_crashed']);

/**
 * A carrier may also report a loss as the attempt's outcome, because its workers do not say bye.
 */
export function isLoss({ code }: Pick<AttemptError, 'code'>): boolean {
  return LOSSES.has(code);
}

/** The first lost attempt is retried at once: most often the worker was at fault. */
export function lose(job: StoredJob, error: AttemptError, moment: Moment): Transition {
  const isFirst = !job.history.some(isLoss);
  return fail(job, error, { waitMs: isFirst ? 0 : undefined }, moment);
}

/**
 * A crash of a job that ran alone counts; of several jobs, each is a suspect and runs alone next.
 */
export function crash(
  job: StoredJob,
  { alone, detail }: { alone: boolean; detail: string },
  moment: Moment,
): Transition {
  if (!holdsLiveLease(job)) return change({ ...job, lease: null });
  if (!alone) return suspect(job, moment);
  const error: AttemptError = {
    code: 'worker_crashed',
    message: `the worker's process died while it ran this job alone: ${detail}`,
  };
  return lose({ ...job, solo: true }, error, moment);
}

/** Adds the attempt to the history and counts it. */
export function withFailure(job: StoredJob, error: AttemptError, { now }: Moment): StoredJob {
  const attempt: FailedAttempt = {
    attempt: job.attempt,
    code: error.code,
    message: boundHistoryMessage(error.message),
    workerId: job.workerId ?? '',
    endedAt: now,
  };
  return { ...job, failures: job.failures + 1, history: [...job.history, attempt] };
}

/** Returns the job to the queue, ready after `waitMs`. */
export function requeue(job: StoredJob, waitMs: number, { now }: Moment): StoredJob {
  return {
    ...job,
    status: 'IN_QUEUE',
    queuedAt: now,
    availableAt: now + Math.ceil(waitMs),
    delayed: waitMs > 0,
    deadlineAt: null,
    lease: null,
    progress: null,
  };
}

/** Ends the job; its retention begins. */
export function settle(
  job: StoredJob,
  status: TerminalStatus,
  { now, settings }: Moment,
  error: AttemptError | null = null,
): StoredJob {
  return {
    ...job,
    status,
    endedAt: now,
    delayed: false,
    deadlineAt: null,
    expiresAt: Math.min(job.expiresAt, now + settings.retentionMs[job.mode]),
    lease: null,
    progress: null,
    error: error && { ...error, attempts: job.history },
  };
}

/** The job has ended but its attempt continues: the holder may still report how it was stopped. */
export function keepLease(settled: StoredJob, before: StoredJob): StoredJob {
  return { ...settled, lease: before.lease };
}
