// Decides every change of a job's status: pure functions of (job, event, now) that return the job's next
// state and effects. changes.ts stores them. attempt-end.ts is a part of this file; no other file imports it.
import {
  isDeadLetter,
  isOpen,
  isWaiting,
  type JobKey,
  type JobNote,
  type JobParent,
  type MemoSize,
  type StoredJob,
  type StoredLease,
  toDeadLetter,
} from '../../store/store.ts';
import type { AttemptError, AttemptUsage } from '../../wire/job/attempt.ts';
import { isTerminal } from '../../wire/job/job.ts';
import type { RetryPolicy } from '../../wire/job/retry-policy.ts';
import type {
  Outcome,
  ReleaseReason,
  ReportHeader,
  ReportReply,
} from '../../wire/link/worker-link.ts';
import {
  addNote,
  nameAttempt,
  noteArrival,
  noteModelWait,
  noteRetry,
  numberRun,
} from '../timeline.ts';
import {
  crash,
  fail,
  isLoss,
  isolate,
  keepLease,
  lose,
  release,
  requeue,
  settle,
  shelter,
  suspect,
} from './attempt-end.ts';
import { type BegunWait, beginWait, forgetFailures } from './handler-wait.ts';
import {
  type AddedChild,
  addChild,
  describeEnd,
  type EndedParent,
  endFilling,
  endParents,
  failFilling,
  giveUpWaiting,
  isObstacle,
  NO_LINKS,
  nameParent,
  needsFilling,
  removeReader,
  startFlow,
  waitForParents,
} from './links.ts';
import { inheritRetry, readWish } from './retry.ts';
import {
  change,
  type Decision,
  dropWait,
  extendAfterAbsence,
  findDueAt,
  holdsLiveLease,
  MAX_SUSPENDED_MS,
  type Moment,
  renewed,
  resume,
  revivedRetries,
  suspend,
  type Transition,
  withDueAt,
} from './transition.ts';

export type JobEvent =
  /** A worker takes the job. */
  | ({ type: 'lease' } & LeaseEvent)
  /** The worker has named the lease in a renew or take. */
  | { type: 'renew' }
  /** The response with the lease never reached the worker. */
  | { type: 'not_received' }
  /** Reports of the worker that holds the lease, in sequence. */
  | { type: 'chunks'; seq: number; count: number; bytes: number }
  | { type: 'progress'; seq: number; value: string }
  | { type: 'log'; seq: number; bytes: number; dropped: number }
  /** `memo`: with the result of the step. */
  | { type: 'step'; seq: number; memo: MemoSize }
  | ({ type: 'outcome' } & OutcomeEvent)
  /** The worker's process is dead. `alone`: it ran nothing else. */
  | { type: 'crashed'; alone: boolean; detail: string }
  /** The worker has drained. */
  | { type: 'worker_left' }
  /** The worker has parked its models in the middle of the attempt, or they are back. */
  | { type: 'suspended' }
  | { type: 'resumed' }
  /** The attempt has ended; the worker or its successor will deliver the outcome. */
  | { type: 'awaiting_delivery'; incarnation: number }
  /** `isWholeFlow`: with all jobs of its flow. */
  | { type: 'cancel'; isWholeFlow?: true }
  /** `parents`: how they are now, if the job has any. `run`: number of the retry of its flow. */
  | { type: 'retry'; parents?: readonly JobParent[] | undefined; run?: number | undefined }
  /** All jobs of its flow have been added. */
  | { type: 'flow_started' }
  /** A retry of its flow has reached the job, which cannot be retried: its children are told. */
  | { type: 'flow_retry_missed'; run: number }
  /** Parents of the job have ended. */
  | { type: 'parents_ended'; ends: readonly EndedParent[] }
  /** Another job waits for this one. */
  | ({ type: 'child_added' } & AddedChild)
  /** It does not need the output of this one any more. */
  | { type: 'reader_left'; reader: JobKey }
  /** The outputs of the parents are in the input, the ends of children in the memo. */
  | { type: 'filled'; memo?: MemoSize | undefined }
  /** They cannot be put there. */
  | { type: 'not_filled'; reason: string }
  | { type: 'set_ttl'; ttlMs: number }
  /** A client deletes a job that has ended, or a newer one needs its room. */
  | { type: 'delete' }
  /** The endpoint was deleted with all of its jobs. */
  | { type: 'endpoint_deleted' }
  /**
   * The platform was away, so workers could not renew. `uncountedMs`: time that must not count.
   */
  | { type: 'platform_away'; uncountedMs: number }
  /** The job's `dueAt` has passed. */
  | {
      type: 'clock';
      /** How long the endpoint keeps failed jobs after their end, ms. */
      failedRetentionMs?: number;
      /** A child that waits will read its output, or its batch will. */
      isKept?: boolean;
    };

/** Events after which an attempt may still be suspended. The others end it, or need its limits. */
const KEEP_SUSPENDED: ReadonlySet<JobEvent['type']> = new Set([
  'suspended',
  'renew',
  'chunks',
  'progress',
  'step',
  'log',
  'child_added',
  'set_ttl',
  'platform_away',
  'clock',
]);

export function next(job: StoredJob, event: JobEvent, moment: Moment): Decision {
  const { suspendedAt, suspendedMs } = job;
  if (suspendedAt === null) return decide(job, event, moment);
  const isOver = moment.now - suspendedAt + suspendedMs >= MAX_SUSPENDED_MS;
  if (!isOver && KEEP_SUSPENDED.has(event.type)) return decide(job, event, moment);
  const live = resume(job, moment.now);
  // Nothing of the attempt has run when the process died.
  if (event.type === 'crashed' && holdsLiveLease(live)) return release(live, moment);
  return decide(live, event, moment);
}

function decide(job: StoredJob, event: JobEvent, moment: Moment): Decision {
  switch (event.type) {
    case 'lease':
      return lease(job, event, moment);
    case 'renew':
      return change(renewed(job, moment), { retried: revivedRetries(job) });
    case 'not_received':
      return holdsLiveLease(job) ? release(job, moment) : change({ ...job, lease: null });
    case 'chunks':
      return addChunks(job, event, moment);
    case 'progress':
      return report(job, event.seq, { progress: event.value }, moment);
    case 'log':
      return report(
        job,
        event.seq,
        { logBytes: job.logBytes + event.bytes, logDropped: job.logDropped + event.dropped },
        moment,
      );
    case 'step': {
      const links = { ...(job.links ?? NO_LINKS), memo: event.memo };
      return report(job, event.seq, { linked: true, links }, moment);
    }
    case 'outcome':
      return settleByOutcome(job, event, moment);
    case 'crashed':
      return crash(job, event, moment);
    case 'worker_left':
      return holdsLiveLease(job) ? release(job, moment) : change({ ...job, lease: null });
    case 'suspended':
      return change(suspend(job, moment.now));
    case 'resumed':
      return change(job);
    case 'awaiting_delivery':
      return awaitDelivery(job, event.incarnation, moment);
    case 'cancel':
      return cancel(job, moment);
    case 'retry':
      return retry(job, event, moment);
    case 'flow_started':
      return startFlow(job, moment);
    case 'flow_retry_missed':
      return missRetry(job, event.run);
    case 'parents_ended':
      return endParents(job, event.ends, moment);
    case 'child_added':
      return addChild(job, event);
    case 'reader_left':
      return removeReader(job, event.reader);
    case 'filled':
      return endFilling(job, event.memo, moment);
    case 'not_filled':
      return failFilling(job, event.reason, moment);
    case 'set_ttl':
      if (isWaiting(job)) return change(setTtlLater(job, event.ttlMs));
      return change({ ...job, expiresAt: dueSince(job, moment) + event.ttlMs, ttlMs: event.ttlMs });
    case 'delete':
      return isTerminal(job.status) ? remove(job) : { refused: `its status is ${job.status}` };
    case 'endpoint_deleted':
      return remove(job);
    case 'platform_away':
      return change(extendAfterAbsence(job, event.uncountedMs, moment));
    case 'clock':
      return actOnTime(job, event, moment);
  }
}

/** The time to live begins when the parents have ended, or goes on when the handler no longer waits. */
function setTtlLater(job: StoredJob, ttlMs: number): StoredJob {
  const { links } = job;
  if (!links?.wait) return { ...job, ttlMs };
  return { ...job, ttlMs, links: { ...links, wait: { ...links.wait, leftMs: ttlMs } } };
}

// --- leasing -----------------------------------------------------------------------------------

interface LeaseEvent {
  lease: Pick<StoredLease, 'token' | 'workerId' | 'incarnation' | 'takeId' | 'gpus'>;
  /** What the job has waited for, for its timeline. */
  arrival?: Omit<JobNote, 'attempt' | 'workerId' | 'run' | 'runAttempt'>;
  /** Of the endpoint and the worker's handler. */
  retry?: RetryPolicy | undefined;
}

function lease(
  job: StoredJob,
  { arrival, lease: given, retry }: LeaseEvent,
  { now, settings }: Moment,
): Decision {
  if (job.status !== 'IN_QUEUE' || job.delayed) return { refused: `its status is ${job.status}` };
  const { availableAt, delayed, executionTimeoutMs, expiresAt } = job;
  const deadlineAt = now + executionTimeoutMs + settings.timeoutGraceMs;
  const lease = { ...given, until: now + settings.leaseMs, started: false, lost: null };
  return change(
    {
      ...job,
      notes: arrival ? noteArrival(job, given.workerId, arrival) : job.notes,
      status: 'IN_PROGRESS',
      attempt: job.attempt + 1,
      startedAt: now,
      deadlineAt,
      suspensions: 0,
      suspendedMs: 0,
      dueAt: findDueAt({ availableAt, deadlineAt, delayed, expiresAt, lease }),
      executionMs: null,
      lease,
      workerId: given.workerId,
      lastSeq: 0,
      chunkCount: 0,
      chunkBytes: 0,
      progress: null,
      usage: null,
      retry: inheritRetry(job, retry, now),
      links: job.links && dropWait(job.links),
    },
    { dropChunks: job.chunkCount > 0, stopWorker: job.lease !== null },
  );
}

/** The attempt is over: only the lease limits the wait for its outcome, not the attempt's deadline. */
function awaitDelivery(job: StoredJob, incarnation: number, moment: Moment): Transition {
  const live = renewed(job, moment, incarnation);
  return change({ ...live, deadlineAt: null }, { retried: revivedRetries(job) });
}

// --- reports -----------------------------------------------------------------------------------

/** Judges a report before its content is read; `apply` if it is the next in sequence. */
export function judgeReport(
  job: StoredJob | undefined,
  report: Pick<ReportHeader, 'kind' | 'attempt' | 'token' | 'seq'>,
): ReportReply | 'apply' {
  if (!job) return { answer: 'gone' };
  if (job.lease?.token !== report.token || job.attempt !== report.attempt) {
    // The token of an ended lease is no longer stored: attempt and number must suffice.
    const isOver = job.lease === null && report.attempt === job.attempt;
    return { answer: isOver && report.seq <= job.lastSeq ? 'duplicate' : 'superseded' };
  }
  if (isTerminal(job.status)) return report.kind === 'outcome' ? 'apply' : { answer: 'superseded' };
  if (report.seq <= job.lastSeq) return { answer: 'duplicate' };
  if (report.seq > job.lastSeq + 1) return { answer: 'gap', expected: job.lastSeq + 1 };
  return 'apply';
}

function report(
  job: StoredJob,
  seq: number,
  fields: Partial<StoredJob>,
  moment: Moment,
): Transition {
  return change(
    { ...renewed(job, moment), ...fields, lastSeq: seq },
    { retried: revivedRetries(job) },
  );
}

function addChunks(
  job: StoredJob,
  event: { seq: number; count: number; bytes: number },
  moment: Moment,
): Transition {
  const chunkBytes = job.chunkBytes + event.bytes;
  const isFirst = job.chunkCount === 0 && event.count > 0;
  const { attempt } = job;
  const first = { at: moment.now, event: 'first_chunk', attempt, ...numberRun(job) } as const;
  const added = report(
    job,
    event.seq,
    { chunkCount: job.chunkCount + event.count, chunkBytes },
    moment,
  );
  if (isFirst) added.job = { ...added.job, notes: addNote(added.job.notes, first) };
  const { maxChunkBytes } = moment.settings;
  if (chunkBytes <= maxChunkBytes) return added;
  const error: AttemptError = {
    code: 'output_too_large',
    message: `the attempt's chunks total ${chunkBytes} bytes, the limit is ${maxChunkBytes}`,
  };
  const failed = fail(added.job, error, {}, moment);
  return { ...stopAttempt(failed, added.job), retried: added.retried + failed.retried };
}

interface OutcomeEvent {
  seq: number;
  outcome: Outcome;
  usage?: AttemptUsage | null | undefined;
  /** The attempt ran out of memory on this GPU type, and the endpoint has a later one for the next attempt. */
  outgrown?: string | undefined;
  /** How long the attempt waited for the start of a model process. */
  waitedMs?: number;
  /** What an attempt that ends as waiting waits for. */
  wait?: BegunWait | undefined;
}

function settleByOutcome(
  reported: StoredJob,
  { outcome, outgrown, seq, usage = null, wait, waitedMs = 0 }: OutcomeEvent,
  moment: Moment,
): Transition {
  const job = noteModelWait(reported, waitedMs);
  const executionMs =
    outcome.kind === 'released' ? job.executionMs : Math.round(outcome.executionMs);
  const notes = noteStop(job, outcome, moment);
  if (isTerminal(job.status)) {
    return change({ ...job, notes, lease: null, lastSeq: seq, executionMs, usage });
  }
  const outputKind = outcome.kind === 'completed' ? outcome.output : job.outputKind;
  // The lease ends. First undo a loss, which the outcome makes void.
  const held = job.lease?.lost ? renewed({ ...job, notes }, moment) : undefined;
  const live: StoredJob = {
    ...(held ?? job),
    notes: held?.notes ?? notes,
    executionMs,
    usage,
    progress: null,
    lastSeq: seq,
    outputKind,
  };
  const retried = revivedRetries(job);
  const counted = (transition: Transition): Transition =>
    retried === 0 ? transition : { ...transition, retried: transition.retried + retried };
  switch (outcome.kind) {
    case 'completed':
      return counted(change(settle(live, 'COMPLETED', moment)));
    case 'failed': {
      const { error, retry } = outcome;
      if (isLoss(error) && retry === 'default') return counted(lose(live, error, moment));
      const isolated = isolate(live, error.code, moment);
      return counted(fail(isolated, error, { wish: readWish(outcome), outgrown }, moment));
    }
    case 'timed_out':
      return counted(fail(live, outcome.error, { status: 'TIMED_OUT' }, moment));
    case 'cancelled':
      return counted(release(live, moment));
    case 'released':
      return counted(settleReleased(live, outcome.reason, moment));
    case 'waiting':
      return counted(wait ? change(beginWait(live, wait, moment)) : release(live, moment));
  }
}

/** How the worker had to stop the attempt. Not set if the attempt is requeued: nobody asked to stop it. */
function noteStop(job: StoredJob, outcome: Outcome, { now }: Moment): readonly JobNote[] {
  if (!('stopped' in outcome) || outcome.stopped === undefined) return job.notes;
  if (outcome.kind === 'cancelled' && !isTerminal(job.status)) return job.notes;
  const about = { ...nameAttempt(job), level: outcome.stopped };
  return addNote(job.notes, { at: now, event: 'stopped', ...about });
}

function settleReleased(job: StoredJob, reason: ReleaseReason, moment: Moment): Transition {
  switch (reason) {
    case 'suspect':
      return suspect(job, moment);
    case 'neighbour':
      return release(shelter(job), moment);
    case 'drain':
    case 'not_started':
      return release(job, moment);
  }
}

// --- clients and time -----------------------------------------------------------------------------

function cancel(job: StoredJob, moment: Moment): Decision {
  if (job.status === 'CANCELLED') return change(job);
  if (isTerminal(job.status)) return { refused: `its status is ${job.status}` };
  const cancelled = settle(job, 'CANCELLED', moment);
  if (job.status === 'IN_PROGRESS') {
    return change(keepLease(cancelled, job), { stopWorker: true });
  }
  // `startedAt` of an earlier attempt would make the wait since then look like execution time.
  return change({ ...cancelled, startedAt: null }, { stopWorker: job.lease !== null });
}

function retry(
  job: StoredJob,
  { parents, run }: Extract<JobEvent, { type: 'retry' }>,
  moment: Moment,
): Decision {
  if (job.links?.batch) {
    return { refused: 'its batch has its result; submit its input again as a new job' };
  }
  const isSkipped = describeEnd(job) === 'SKIPPED';
  if (!hasFailed(job) && !isSkipped) {
    return {
      refused: `its status is ${job.status}; only FAILED and TIMED_OUT jobs can be retried`,
    };
  }
  const obstacle = parents?.find(isObstacle);
  if (obstacle) {
    return {
      refused: `its parent ${nameParent(job, obstacle)} has not COMPLETED; retry that first`,
    };
  }
  const ready = { ...requeue(job, 0, moment), expiresAt: moment.now + job.ttlMs };
  const again = noteRun(parents ? waitAgain(ready, parents, moment) : ready, run);
  return change(
    {
      ...again,
      startedAt: null,
      endedAt: null,
      executionMs: null,
      usage: null,
      failures: 0,
      releases: 0,
      chunkCount: 0,
      chunkBytes: 0,
      outputKind: 'none',
      error: null,
      history: [],
      links: forgetFailures(again.links),
      retry: job.retry?.own ? { own: job.retry.own } : null,
      // Another failure may be submitted again, too.
      resubmission: job.resubmission?.of === undefined ? null : { of: job.resubmission.of },
      notes: noteRetry(job, moment.now),
    },
    { retried: 1, dropChunks: true, dropOutput: true, stopWorker: job.lease !== null },
  );
}

function noteRun(job: StoredJob, run: number | undefined): StoredJob {
  const { links } = job;
  if (run === undefined || !links?.flow) return job;
  return { ...job, links: { ...links, flow: { ...links.flow, run } } };
}

function missRetry(job: StoredJob, run: number): Decision {
  if (!job.links) return { refused: 'it is of no flow' };
  const noted = noteRun(job, run);
  if (!isTerminal(job.status) || !noted.links) return change(noted);
  return change({ ...noted, links: { ...noted.links, children: [] } });
}

/** The job waits for those of its parents that run again. */
function waitAgain(job: StoredJob, parents: readonly JobParent[], moment: Moment): StoredJob {
  const links = { ...(job.links ?? NO_LINKS), parents };
  if (parents.some(isOpen)) return waitForParents({ ...job, links }, moment);
  if (!needsFilling(links)) return { ...job, links };
  return waitForParents({ ...job, links: { ...links, filling: true } }, moment);
}

/** Start of a time to live: a delayed job has its whole time once it is due. That of a suspended one moves later. */
function dueSince({ availableAt, delayed, suspendedAt }: StoredJob, { now }: Moment): number {
  return delayed ? Math.max(now, availableAt) : (suspendedAt ?? now);
}

function remove(job: StoredJob): Transition {
  return change(job, { removed: true, stopWorker: job.lease !== null });
}

export function hasFailed({ status }: Pick<StoredJob, 'status'>): boolean {
  return status === 'FAILED' || status === 'TIMED_OUT';
}

/** The retention of the job is over, but its endpoint may keep failed jobs for longer. */
function expireJob(job: StoredJob, failedRetentionMs: number, { now }: Moment): Transition {
  const expiresAt = (job.endedAt ?? 0) + failedRetentionMs;
  if (!hasFailed(job) || isDeadLetter(job) || job.lease || expiresAt <= now) return remove(job);
  // Nothing reads its chunks, which may be 1 GB, and no bound of dead letters counts them.
  const { memo: _, ...links } = job.links ?? NO_LINKS;
  const kept = { ...toDeadLetter(job), expiresAt, links: job.links && links };
  return change(kept, { dropChunks: job.chunkCount > 0 });
}

function actOnTime(
  job: StoredJob,
  { failedRetentionMs = 0, isKept = false }: Extract<JobEvent, { type: 'clock' }>,
  moment: Moment,
): Transition {
  const { now } = moment;
  if (isWaiting(job)) return job.expiresAt <= now ? giveUpWaiting(job, moment) : change(job);
  if (job.suspendedAt === null) {
    if (job.expiresAt <= now && isKept) {
      return change({ ...job, expiresAt: now + moment.settings.retentionMs[job.mode] });
    }
    if (job.expiresAt <= now) return expireJob(job, failedRetentionMs, moment);
    if (job.deadlineAt !== null && job.deadlineAt <= now) return timeOut(job, moment);
  }
  if (job.lease && job.lease.lost === null && job.lease.until <= now) return expire(job, moment);
  if (job.delayed && job.availableAt <= now) return change({ ...job, delayed: false });
  return change(job);
}

function timeOut(job: StoredJob, moment: Moment): Transition {
  const error: AttemptError = {
    code: 'execution_timeout',
    message: `no report from the worker ${moment.settings.timeoutGraceMs} ms after the execution timeout of ${job.executionTimeoutMs} ms`,
  };
  return stopAttempt(fail(job, error, { status: 'TIMED_OUT' }, moment), job);
}

/** The attempt has failed but continues: its worker must stop it. */
function stopAttempt(failed: Transition, before: StoredJob): Transition {
  if (!isTerminal(failed.job.status)) return { ...failed, stopWorker: true };
  return { ...failed, ...change(keepLease(failed.job, before), { stopWorker: true }) };
}

/**
 * Returns the job to the queue, or ends it if it has no attempt left. In the queue, the old token stays
 * valid until another worker takes the job.
 */
function expire(leased: StoredJob, moment: Moment): Transition {
  const job = resume(leased, moment.now);
  const { lease } = job;
  if (!lease || isTerminal(job.status)) return change({ ...job, lease: null });
  const lost = lease.started && leased.suspendedAt === null ? 'failure' : 'release';
  const error: AttemptError = {
    code: 'lease_expired',
    // A worker of RunPod was silent for longer: the platform renews for it for three of its pings.
    message: `worker ${lease.workerId} did not renew its lease for at least ${moment.settings.leaseMs} ms`,
  };
  const transition =
    lost === 'failure' ? lose(job, error, moment) : release(job, moment, 'lease_lost');
  if (isTerminal(transition.job.status)) return transition;
  const counted = transition.retried > 0 ? 'failure' : lost;
  const kept: StoredLease = { ...lease, lost: counted };
  if (job.deadlineAt === null) kept.delivering = true;
  return { ...transition, job: withDueAt({ ...transition.job, lease: kept }) };
}
