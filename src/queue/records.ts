// Formats a stored job as clients see it. The output's bytes are inserted unparsed.
import { Buffer } from 'node:buffer';
import { isWaiting, type JobAttachment, type JobTick, type StoredJob } from '../store/store.ts';
import { isTerminal } from '../wire/job/job.ts';
import type { JobDetailsHead, JobSummary, WaitReason } from '../wire/job/job-records.ts';
import { completeRetry } from './lifecycle/retry.ts';
import { describeTimeline, numberRun } from './timeline.ts';

/** Time from (re)queueing to the start of the attempt, or until now if the job still waits. Whole ms. */
export function delayTime(job: StoredJob, now: number): number {
  if (job.status === 'IN_QUEUE') return Math.max(0, now - job.queuedAt);
  const startedAt = job.startedAt ?? job.endedAt ?? now;
  return Math.max(0, startedAt - job.queuedAt);
}

/** Run time of the last attempt, or until now if it still runs; 0 before it starts. Whole ms. */
export function executionTime(job: StoredJob, now: number): number {
  if (job.executionMs !== null) return job.executionMs;
  if (job.startedAt === null || job.status === 'IN_QUEUE') return 0;
  const until = job.endedAt ?? job.suspendedAt ?? now;
  return Math.max(0, until - job.startedAt - job.suspendedMs);
}

/** For the records of an attempt that stands still. */
function nameSuspension({ suspendedAt }: StoredJob): { suspendedSince?: number } {
  return suspendedAt === null ? {} : { suspendedSince: suspendedAt };
}

/** Members that the records of all formats share, except `output`. */
export function describeJob<Output>(
  job: StoredJob,
  now: number,
  output: Output | undefined,
): Record<string, unknown> {
  const head: Record<string, unknown> = {
    id: job.id,
    status: job.status,
    delayTime: delayTime(job, now),
    executionTime: executionTime(job, now),
  };
  if (job.workerId !== null) head['workerId'] = job.workerId;
  if (job.outputKind === 'chunks' && !output) head['outputBytes'] = job.chunkBytes;
  return head;
}

/** Composes a job's record for the clients of one API: JSON in pieces, the output unchanged. */
export type ComposeRecord = <Output>(
  job: StoredJob,
  now: number,
  output: Output | undefined,
  waitReason?: WaitReason,
) => (Output | Uint8Array)[];

/** Record formats besides Millrace's own, by the name in a job's attachment. */
export type RecordFormats = Readonly<Record<string, ComposeRecord>>;

export function hasForeignFormat(attachment: JobAttachment | null): boolean {
  return (attachment?.format ?? null) !== null;
}

/** Returns the job record as JSON in pieces, with the output (JSON, if any) unchanged. */
export function composeRecord<Output>(
  job: StoredJob,
  now: number,
  output: Output | undefined,
  waitReason?: WaitReason,
): (Output | Uint8Array)[] {
  const head = describeJob(job, now, output);
  head['attempt'] = job.attempt;
  Object.assign(head, nameSuspension(job));
  if (job.group !== null) head['group'] = job.group;
  if (job.tags) head['tags'] = job.tags;
  if (job.error) head['error'] = job.error;
  if (job.usage) head['usage'] = job.usage;
  if (waitReason) head['waitReason'] = waitReason;
  const progress = progressOf(job);
  return addMembers<Output | Uint8Array>(head, {
    ...(progress && { progress }),
    ...(output && { output }),
  });
}

/** JSON; undefined unless the job runs and its handler has reported progress. */
export function progressOf(job: StoredJob): Uint8Array | undefined {
  if (job.status !== 'IN_PROGRESS' || job.progress === null) return undefined;
  return Buffer.from(job.progress);
}

/** Returns the object as JSON in pieces, followed by members that are JSON already. */
export function addMembers<Value>(
  head: Record<string, unknown>,
  members: Readonly<Record<string, Value>>,
): (Value | Uint8Array)[] {
  const pieces: (Value | Uint8Array)[] = [Buffer.from(JSON.stringify(head).slice(0, -1))];
  for (const [name, value] of Object.entries(members)) {
    pieces.push(Buffer.from(`,${JSON.stringify(name)}:`), value);
  }
  return [...pieces, Buffer.from('}')];
}

/** Times of a job and its settings. */
export function describeDetails(
  job: StoredJob,
  now: number,
  waitReason?: WaitReason,
): JobDetailsHead {
  const { availableAt, endedAt, executionTimeoutMs, expiresAt, priority, tick } = job;
  return {
    ...toSummary(job, now),
    ...numberRun(job),
    queuedAt: job.queuedAt,
    ...(job.delayed && !isWaiting(job) && { availableAt }),
    startedAt: job.status === 'IN_QUEUE' ? null : job.startedAt,
    ...nameSuspension(job),
    endedAt,
    expiresAt,
    executionTimeout: executionTimeoutMs,
    maxAttempts: completeRetry(job).maxAttempts,
    priority,
    ...(job.group !== null && { group: job.group }),
    ...describeLinks(job),
    ...(tick && { schedule: describeTick(tick) }),
    chunks: job.chunkCount,
    logBytes: job.logBytes,
    timeline: describeTimeline(job),
    ...(job.status === 'IN_PROGRESS' &&
      job.progress !== null && { progress: JSON.parse(job.progress) }),
    ...(waitReason && { waitReason }),
  };
}

/** Parents, the children that still wait, those that a handler awaits, and the flow. */
function describeLinks({
  links,
}: StoredJob): Pick<JobDetailsHead, 'awaits' | 'children' | 'flow' | 'parents'> {
  const { children = [], flow, parents: all = [] } = links ?? {};
  const parents = all.filter(({ step }) => step === undefined);
  const awaited = all.filter(({ step }) => step !== undefined);
  return {
    ...(parents.length > 0 && {
      parents: parents.map(({ as, ended, endpointId, id, onFailure }) => ({
        ...{ endpoint: endpointId, id, onFailure },
        ...(as !== undefined && { as }),
        ...(ended && { ended }),
      })),
    }),
    ...(awaited.length > 0 && {
      awaits: awaited.map(({ ended, endpointId, id, step }) => ({
        ...{ name: step?.name ?? '', endpoint: endpointId, id },
        ...(ended && { ended }),
      })),
    }),
    ...(children.length > 0 && {
      children: children.map(({ endpointId, id }) => ({ endpoint: endpointId, id })),
    }),
    ...(flow && { flow: { endpoint: flow.endpointId, id: flow.id } }),
  };
}

export function describeTick({
  at,
  isTriggered,
  scheduleId,
}: JobTick): NonNullable<JobDetailsHead['schedule']> {
  return { id: scheduleId, tickAt: at, ...(isTriggered && { triggered: true }) };
}

export function toSummary(job: StoredJob, now: number): JobSummary {
  const workerId = job.lease?.workerId ?? job.workerId;
  return {
    id: job.id,
    status: job.status,
    attempt: job.attempt,
    submittedAt: job.submittedAt,
    delayTime: delayTime(job, now),
    executionTime: executionTime(job, now),
    ...(workerId !== null && { workerId }),
    ...(job.tags && { tags: job.tags }),
  };
}

/** Whether the job's record can have an output. */
export function hasOutput(job: StoredJob): boolean {
  return isTerminal(job.status) && job.status === 'COMPLETED' && job.outputKind !== 'none';
}
