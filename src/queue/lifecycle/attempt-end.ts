// Part of lifecycle.ts: decides what happens to a job when its attempt ends, and bounds the outcome that its worker
// reports.
import { limitText } from '../../base/text/printable.ts';
import type { JobChild, JobLinks, JobReader, StoredJob } from '../../store/store.ts';
import type { AttemptError, AttemptUsage, GpuUsage, StuckPlace } from '../../wire/job/attempt.ts';
import type { ErrorCode, TerminalStatus } from '../../wire/job/job.ts';
import type { FailedAttempt } from '../../wire/job/job-records.ts';
import type { Outcome } from '../../wire/link/worker-link.ts';
import { hasForeignFormat } from '../records.ts';
import { notePostponed, noteReturn, numberRun } from '../timeline.ts';
import { completeRetry, decideRetry, type RetryWish } from './retry.ts';
import { change, dropWait, holdsLiveLease, type Moment, type Transition } from './transition.ts';

interface FailOptions {
  /** Default: by the policy. */
  wish?: RetryWish;
  /** Status of the job if it is not retried. Default FAILED. */
  status?: 'FAILED' | 'TIMED_OUT';
  /** The worker was lost, for the first time in this run. */
  isFirstLoss?: boolean;
  /** The next attempt needs a later GPU type than this one. */
  outgrown?: string | undefined;
}

/** Ends a failed attempt: the policy of the job decides whether it is retried, after which wait. */
export function fail(
  job: StoredJob,
  error: AttemptError,
  options: FailOptions,
  moment: Moment,
): Transition {
  const { isFirstLoss = false, outgrown, status = 'FAILED', wish = { kind: 'default' } } = options;
  const failed = withFailure(job, error, moment, outgrown);
  if (wouldRepeatStream(job)) return change(settle(failed, status, moment, error));
  const { now, random, settings } = moment;
  const { expiresAt, retry } = job;
  const decision = decideRetry(completeRetry(job, settings.retry), {
    // Whatever its worker says of it.
    code: status === 'TIMED_OUT' ? 'execution_timeout' : error.code,
    ...{ wish, failures: failed.failures, now, expiresAt, random },
    firstStartedAt: retry?.firstStartedAt,
    isAtOnce: isFirstLoss || outgrown !== undefined,
  });
  if (!decision.isRetried) return change(settle(failed, status, moment, error));
  const { counts, waitMs } = decision;
  if (counts) return change(requeue(failed, waitMs, moment), { retried: 1 });
  const postponed = requeue({ ...job, notes: notePostponed(job, error, now) }, waitMs, moment);
  // Its time to live runs on, so that the job ends.
  return change({ ...postponed, expiresAt });
}

/**
 * Ends an attempt that did not fail by itself: the job returns to its place in the queue. The first
 * `maxReleases` releases of a job do not count as failures.
 */
export function release(
  job: StoredJob,
  moment: Moment,
  event: 'released' | 'lease_lost' = 'released',
): Transition {
  if (wouldRepeatStream(job)) return endStream(job, moment);
  const { maxReleases } = moment.settings;
  if (job.releases < maxReleases) {
    const notes = noteReturn(job, event, moment.now);
    return change(requeue({ ...job, notes, releases: job.releases + 1 }, 0, moment));
  }
  const error: AttemptError = {
    code: 'released_too_often',
    message: `workers released the job more than ${maxReleases} times`,
  };
  return fail(job, error, {}, moment);
}

/**
 * Whether another attempt would send chunks that a client has already received. Clients of foreign
 * record formats cannot learn that a stream restarts.
 */
function wouldRepeatStream({ attachment, attempt, cursorAttempt }: StoredJob): boolean {
  return hasForeignFormat(attachment) && cursorAttempt === attempt;
}

function endStream(job: StoredJob, moment: Moment): Transition {
  const error: AttemptError = {
    code: 'released_too_often',
    message: 'the worker released the job after the client had received a part of its stream',
  };
  return fail(job, error, {}, moment);
}

/**
 * Error codes of attempts that end a thread or process, and with it the other attempts there, or that
 * lacked device memory, which the other attempts use too.
 */
const BEST_ALONE: ReadonlySet<ErrorCode> = new Set([
  'thread_crashed',
  'handler_exited',
  'uncaught_exception',
  'unhandled_rejection',
  'out_of_memory',
  'memory_limit_exceeded',
  'gpu_out_of_memory',
  'gpu_context_lost',
  'model_process_crashed',
]);

/** Places are positions: Unix µs. */
const PLACES_PER_MS = 1_000;

/** If the error has such a code, the job runs alone next, because it may happen again. */
export function isolate(job: StoredJob, code: ErrorCode, moment: Moment): StoredJob {
  if (!BEST_ALONE.has(code)) return job;
  // A job that lacked device memory has ended no process, so it keeps its place.
  return code === 'gpu_out_of_memory' ? { ...job, solo: true } : holdBack(job, moment);
}

/** The job ended its thread or process: it runs alone next, after the jobs of its group that wait now. */
function holdBack(job: StoredJob, { now }: Moment): StoredJob {
  return { ...job, solo: true, place: Math.max(job.place, now * PLACES_PER_MS) };
}

/** From this release on, a job whose thread died because of another job runs alone next. */
const NEIGHBOUR_RELEASES = 3;

/** Lets the job run alone before other jobs in its thread make it FAILED. */
export function shelter(job: StoredJob): StoredJob {
  return job.releases + 1 >= NEIGHBOUR_RELEASES ? { ...job, solo: true } : job;
}

/**
 * Handles one of several jobs in a thread or process that died: it is unknown which job was the cause.
 * The job returns to its place, uncounted, and runs alone next. A job that already ran alone is released.
 */
export function suspect(job: StoredJob, moment: Moment): Transition {
  if (job.solo || wouldRepeatStream(job)) return release(job, moment);
  const notes = noteReturn(job, 'released', moment.now);
  return change(requeue({ ...job, notes, solo: true }, 0, moment));
}

const LOSSES: ReadonlySet<ErrorCode> = new Set(['lease_expired', 'worker_crashed']);

/** Whether the attempt was lost with its worker. RunPod sessions also report a loss as an outcome. */
export function isLoss({ code }: Pick<AttemptError, 'code'>): boolean {
  return LOSSES.has(code);
}

/** Fails a lost attempt; the first one is retried at once, because most often the worker was at fault. */
export function lose(job: StoredJob, error: AttemptError, moment: Moment): Transition {
  const isFirst = !job.history.some(isLoss);
  return fail(job, error, { isFirstLoss: isFirst }, moment);
}

/**
 * Ends the attempt of a crashed worker. If the job ran alone, the crash counts as its failure, and the job
 * goes to the end of the queue; otherwise each of the worker's jobs is a suspect and runs alone next.
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
  return lose(holdBack(job, moment), error, moment);
}

/** Adds the attempt to the history and counts it. */
function withFailure(
  job: StoredJob,
  error: AttemptError,
  { now }: Moment,
  outgrown?: string,
): StoredJob {
  const attempt: FailedAttempt = {
    attempt: job.attempt,
    ...numberRun(job),
    code: error.code,
    message: boundHistoryMessage(error.message),
    workerId: job.workerId ?? '',
    startedAt: job.startedAt ?? now,
    endedAt: now,
    ...(job.usage && { usage: job.usage }),
    ...(outgrown !== undefined && { outgrownGpuType: outgrown }),
  };
  return { ...job, failures: job.failures + 1, history: [...job.history, attempt] };
}

/** Returns the job to the queue, ready after `waitMs`. Its time to live does not run during that wait. */
export function requeue(job: StoredJob, waitMs: number, { now }: Moment): StoredJob {
  const wholeMs = Math.ceil(waitMs);
  return {
    ...job,
    status: 'IN_QUEUE',
    queuedAt: now,
    availableAt: now + wholeMs,
    expiresAt: job.expiresAt + wholeMs,
    delayed: wholeMs > 0,
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
  const expiresAt = Math.min(job.expiresAt, now + settings.retentionMs[job.mode]);
  return {
    ...job,
    status,
    endedAt: now,
    delayed: false,
    deadlineAt: null,
    expiresAt,
    dueAt: expiresAt,
    lease: null,
    progress: null,
    error: error && { ...error, attempts: job.history },
    links: endLinks(job.links, status),
  };
}

/** The end of a job tells its children, once. Some will read its output. */
function endLinks(links: JobLinks | null, status: TerminalStatus): JobLinks | null {
  if (!links) return null;
  const { filling: _, held: __, memo, ...rest } = dropWait(links);
  const readers = links.children.filter(({ reads }) => reads).map(toReader);
  const isRead = status === 'COMPLETED' && readers.length > 0;
  // A retry by a client goes on from what the job remembers.
  const keepsMemo = memo !== undefined && (status === 'FAILED' || status === 'TIMED_OUT');
  return { ...rest, children: [], ...(isRead && { readers }), ...(keepsMemo && { memo }) };
}

/** The child, once its parent has COMPLETED. */
export function toReader({ endpointId, id, shard }: JobChild): JobReader {
  return { endpointId, id, ...(shard !== undefined && { shard }) };
}

/** The job has ended but its attempt continues: the holder may still report how it was stopped. */
export function keepLease(settled: StoredJob, before: StoredJob): StoredJob {
  return { ...settled, lease: before.lease };
}

// The store keeps the outcome in the job's row, reads the whole row at every change of the job, and may read thousands of
// rows at once. So the outcome is bounded.

/** Longest message, stack or type of an error. Millrace's own workers already cut them at 32,000. */
const MAX_TEXT_CHARS = 33_000;
/** Longest message in the history, which has one for each failed attempt. */
const MAX_HISTORY_CHARS = 1_000;
/** One year: longer than any run or wait of an attempt, and far below the largest safe integer. */
const MAX_SPAN_MS = 365 * 86_400_000;

export interface OutputSize {
  /** Bytes of the report's body. */
  bytes: number;
  maxBytes: number;
}

/**
 * Cuts long texts, limits and rounds times and figures, and fails an attempt whose output is too large. It refuses nothing,
 * because the worker would repeat a refused report.
 */
export function boundOutcome(outcome: Outcome, output: OutputSize): Outcome {
  if (outcome.kind === 'released') return outcome;
  const executionMs = boundSpan(outcome.executionMs);
  if (outcome.kind === 'completed' && outcome.output === 'value' && output.bytes > output.maxBytes)
    return { kind: 'failed', executionMs, error: describeTooLarge(output), retry: 'never' };
  if (outcome.kind !== 'failed' && outcome.kind !== 'timed_out') return { ...outcome, executionMs };
  const error = boundError(outcome.error);
  if (outcome.kind === 'timed_out' || outcome.retryAfterMs === undefined)
    return { ...outcome, executionMs, error };
  return { ...outcome, executionMs, error, retryAfterMs: boundSpan(outcome.retryAfterMs) };
}

/** The largest figure that survives a sum of many. */
const MAX_FIGURE = 2 ** 50;
/** A year of 1,000 GPUs: as ms, the sum of hundreds is a safe integer. */
const MAX_GPU_SECONDS = 1_000 * 365 * 86_400;

/** Limits and rounds the figures. Null if the worker reported none. */
export function boundUsage(usage: AttemptUsage | undefined): AttemptUsage | null {
  const gpu = usage?.gpu;
  return gpu ? { gpu: boundGpuUsage(gpu) } : null;
}

function boundGpuUsage(gpu: GpuUsage): GpuUsage {
  const {
    energyJoules,
    shared,
    seconds,
    utilizationMean,
    vramMeanBytes,
    vramPeakBytes,
    vramScope,
  } = gpu;
  return {
    seconds: boundFigure(Math.min(seconds, MAX_GPU_SECONDS), 3),
    ...(vramPeakBytes !== undefined && { vramPeakBytes: boundFigure(vramPeakBytes) }),
    ...(vramMeanBytes !== undefined && { vramMeanBytes: boundFigure(vramMeanBytes) }),
    ...(vramScope !== undefined && { vramScope }),
    ...(utilizationMean !== undefined && { utilizationMean: boundShare(utilizationMean) }),
    ...(energyJoules !== undefined && { energyJoules: boundFigure(energyJoules, 3) }),
    shared,
  };
}

function boundFigure(value: number, digits = 0): number {
  return Math.round(Math.min(value, MAX_FIGURE) * 10 ** digits) / 10 ** digits;
}

function boundShare(value: number): number {
  return Math.min(1, boundFigure(value, 4));
}

/** Cuts the message of a failed attempt for the job's history. */
export function boundHistoryMessage(message: string): string {
  return limitText(message, MAX_HISTORY_CHARS);
}

/** The same words as the worker's own check. */
function describeTooLarge({ bytes, maxBytes }: OutputSize): AttemptError {
  const message = `the output is ${bytes} bytes of JSON, the limit is ${maxBytes}`;
  return { code: 'output_too_large', message };
}

function boundError(error: AttemptError): AttemptError {
  const { message, stack, stuck, type } = error;
  return {
    ...error,
    message: limitText(message, MAX_TEXT_CHARS),
    ...(type !== undefined && { type: limitText(type, MAX_TEXT_CHARS) }),
    ...(stack !== undefined && { stack: limitText(stack, MAX_TEXT_CHARS) }),
    ...(stuck !== undefined && { stuck: boundStuckPlace(stuck) }),
  };
}

function boundStuckPlace(place: StuckPlace): StuckPlace {
  const { eventLoopUtilization, heapUsedBytes, lastChunkMs, stack } = place;
  return {
    ...place,
    ...(stack !== undefined && { stack: limitText(stack, MAX_TEXT_CHARS) }),
    ...(lastChunkMs !== undefined && { lastChunkMs: boundFigure(boundSpan(lastChunkMs)) }),
    ...(eventLoopUtilization !== undefined && {
      eventLoopUtilization: boundShare(eventLoopUtilization),
    }),
    ...(heapUsedBytes !== undefined && { heapUsedBytes: boundFigure(heapUsedBytes) }),
  };
}

export function boundSpan(ms: number): number {
  return Math.min(ms, MAX_SPAN_MS);
}
