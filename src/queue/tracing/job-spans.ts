// The spans of the platform's part of a job, made from the changes of its state. Pure: span IDs follow from the job's ID and the attempt, so
// that a platform that was killed goes on with the same trace and stores nothing for it.
import { hash } from 'node:crypto';
import type { StoredDelivery, StoredJob } from '../../store/store.ts';
import { isTerminal } from '../../wire/job/job.ts';
import { splitTraceparent, type TraceContext } from '../../wire/trace-context.ts';
import type { Transition } from '../lifecycle/transition.ts';
import type { SendAttempt } from '../webhooks/webhooks.ts';

const SAMPLED = 1;
/** Hex digits of a trace ID that decide on its sampling: 32 bits. */
const RATIO_DIGITS = 8;
const RATIO_RANGE = 2 ** 32;

export type TracedJob = Pick<StoredJob, 'endpointId' | 'id' | 'traceparent' | 'tracestate'>;

/** The trace of a sampled job. */
interface JobTrace {
  traceId: string;
  /** The client's span. */
  parentSpanId: string | undefined;
  tracestate: string | undefined;
}

/**
 * The client decides on its traces by the sampled flag. Of the jobs without a trace, a share of `ratio` gets one.
 * @returns undefined if the job is not sampled
 */
export function findTrace(job: TracedJob, ratio: number): JobTrace | undefined {
  if (job.traceparent !== null) {
    const { flags, spanId, traceId } = splitTraceparent(job.traceparent);
    if ((flags & SAMPLED) === 0) return undefined;
    return { traceId, parentSpanId: spanId, tracestate: job.tracestate ?? undefined };
  }
  const traceId = hash('sha256', `trace ${job.endpointId}/${job.id}`).slice(0, 32);
  const position = Number.parseInt(traceId.slice(-RATIO_DIGITS), 16) / RATIO_RANGE;
  return position < ratio ? { traceId, parentSpanId: undefined, tracestate: undefined } : undefined;
}

/** The context for a program that continues the trace below one of the job's spans. */
export function continueTrace({ traceId, tracestate }: JobTrace, spanId: string): TraceContext {
  const traceparent = `00-${traceId}-${spanId}-01`;
  return tracestate === undefined ? { traceparent } : { traceparent, tracestate };
}

export function leaseSpanId(job: TracedJob, attempt: number): string {
  return spanIdOf(job, `lease ${attempt}`);
}

interface Interval {
  startMs: number;
  endMs: number;
}

/** The job's first span: the parent of all others that the platform makes. */
export function describeSubmission(job: StoredJob, trace: JobTrace, interval: Interval): Span {
  return {
    ...{ ...trace, ...interval, spanId: submitSpanId(job), name: 'millrace.submit' },
    ...{ kind: 'server', error: undefined },
    attributes: { ...nameJob(job), 'millrace.mode': job.mode, 'millrace.priority': job.priority },
  };
}

/** The spans that end with the change. `interval`: of the commit that stored it. */
export function describeChange(
  before: StoredJob,
  transition: Transition,
  { interval, trace }: { trace: JobTrace; interval: Interval },
): Span[] {
  const { job, removed } = transition;
  if (isTerminal(before.status)) return [];
  const isNewAttempt = job.attempt > before.attempt;
  const hasEnded = removed || isTerminal(job.status);
  const isReported = !isNewAttempt && job.lastSeq > before.lastSeq;
  // The worker of an expired lease may still report; the lease is over when another begins, or when the job ends.
  const isLost = before.lease !== null && before.lease.lost !== null;
  const isHeld = before.status === 'IN_PROGRESS' || (isLost && isReported);
  const mayReport = !removed && job.lease !== null && job.lease.lost !== null;
  const isOver = isHeld && (hasEnded || (job.status === 'IN_QUEUE' && !mayReport));
  const spans: Span[] = [];
  if (isOver) {
    const end = { endMs: interval.endMs, ...judgeEnd(before, transition) };
    spans.push(describeLease(before, trace, end));
    if (isReported) spans.push(describeReport(before, trace, interval));
  } else if (isLost && (isNewAttempt || hasEnded)) {
    spans.push(describeLease(before, trace, { endMs: before.lease?.until, ...LOST }));
  }
  if (!isHeld && (isNewAttempt || hasEnded)) {
    spans.push(describeWait(before, transition, { trace, interval }));
  }
  return spans;
}

/** One attempt of a delivery, `attempts` counted from 0 before it. */
export function describeWebhook(
  delivery: StoredDelivery,
  job: TracedJob,
  {
    interval,
    result: { detail, result },
    trace,
  }: { trace: JobTrace; interval: Interval; result: SendAttempt },
): Span {
  const { attempts, id, receiver } = delivery;
  return {
    ...{ ...belowSubmission(job, trace), ...interval, spanId: webhookSpanId(job, delivery) },
    ...{ name: 'millrace.webhook', kind: 'client', error: result === '2xx' ? undefined : detail },
    attributes: {
      ...nameJob(job),
      ...{ 'millrace.delivery': id, 'millrace.webhook.attempt': attempts + 1 },
      ...{ 'millrace.webhook.result': result, 'server.address': receiver },
    },
  };
}

export function webhookSpanId(job: TracedJob, { attempts, id }: StoredDelivery): string {
  return spanIdOf(job, `webhook ${id} ${attempts}`);
}

function describeWait(
  before: StoredJob,
  { job, removed }: Transition,
  { interval, trace }: { trace: JobTrace; interval: Interval },
): Span {
  const attempt = before.attempt + 1;
  const delayMs = before.availableAt - before.queuedAt;
  const isLeased = job.status === 'IN_PROGRESS' && !removed;
  return {
    ...{ ...belowSubmission(before, trace), spanId: spanIdOf(before, `queue ${attempt}`) },
    ...{ name: 'millrace.queue', kind: 'internal', error: undefined },
    startMs: before.queuedAt,
    endMs: (isLeased ? job.startedAt : null) ?? interval.endMs,
    attributes: {
      ...{ ...nameJob(before), 'millrace.attempt': attempt },
      ...(delayMs > 0 && { 'millrace.delay_ms': delayMs }),
      ...(!isLeased && { 'millrace.outcome': removed ? 'expired' : job.status.toLowerCase() }),
    },
  };
}

interface LeaseEnd {
  /** Undefined: unknown. */
  endMs: number | undefined;
  outcome: string;
  code?: string | undefined;
  error?: string | undefined;
}

const LOST = { outcome: 'lost', error: 'the worker did not renew its lease' };

function describeLease(
  job: StoredJob,
  trace: JobTrace,
  { code, endMs, error, outcome }: LeaseEnd,
): Span {
  const startMs = job.startedAt ?? job.queuedAt;
  return {
    ...{ ...belowSubmission(job, trace), spanId: leaseSpanId(job, job.attempt) },
    ...{ name: 'millrace.lease', kind: 'internal', startMs, endMs: endMs ?? startMs },
    error,
    attributes: {
      ...nameJob(job),
      ...{ 'millrace.attempt': job.attempt, 'millrace.outcome': outcome },
      ...(job.workerId !== null && { 'millrace.worker': job.workerId }),
      ...(code !== undefined && { 'error.type': code }),
    },
  };
}

/** From the arrival of the outcome until it is on disk. */
function describeReport(job: StoredJob, trace: JobTrace, interval: Interval): Span {
  return {
    ...{ ...trace, ...interval, parentSpanId: leaseSpanId(job, job.attempt) },
    ...{ spanId: spanIdOf(job, `report ${job.attempt}`), name: 'millrace.report', kind: 'server' },
    error: undefined,
    attributes: { ...nameJob(job), 'millrace.attempt': job.attempt },
  };
}

function judgeEnd(before: StoredJob, { job, removed }: Transition): Omit<LeaseEnd, 'endMs'> {
  if (removed) return { outcome: 'expired' };
  const last = job.history.at(-1);
  const failure = last === before.history.at(-1) ? undefined : last;
  const failed = failure && { code: failure.code, error: failure.message };
  if (job.status === 'IN_QUEUE') return { outcome: failure ? 'failed' : 'released', ...failed };
  return { outcome: job.status.toLowerCase(), ...failed };
}

function belowSubmission(job: TracedJob, { traceId, tracestate }: JobTrace) {
  return { traceId, tracestate, parentSpanId: submitSpanId(job) };
}

function submitSpanId(job: TracedJob): string {
  return spanIdOf(job, 'submit');
}

function spanIdOf({ endpointId, id }: TracedJob, what: string): string {
  return hash('sha256', `span ${endpointId}/${id} ${what}`).slice(0, 16);
}

function nameJob({ endpointId, id }: TracedJob) {
  return { 'millrace.job.id': id, 'millrace.endpoint': endpointId };
}

/** Kinds of OpenTelemetry. */
export type SpanKind = 'internal' | 'server' | 'client';

export interface Span {
  /** 32 hex digits. */
  traceId: string;
  /** 16 hex digits. */
  spanId: string;
  /** Undefined: the first span of its trace. */
  parentSpanId: string | undefined;
  tracestate: string | undefined;
  name: string;
  kind: SpanKind;
  /** Unix ms. */
  startMs: number;
  endMs: number;
  attributes: Readonly<Record<string, string | number | boolean>>;
  /** Why it failed; undefined: it did not. */
  error: string | undefined;
}

/** Takes spans that have ended. `add` must not block, and never throws. */
export interface SpanSink {
  add(span: Span): void;
}
