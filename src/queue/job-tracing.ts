// Traces jobs: a span for each attempt, lease and webhook, whose IDs follow from the job.
import { hash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import type { Store, StoredDelivery, StoredJob } from '../store/store.ts';
import { isTerminal } from '../wire/job/job.ts';
import { splitTraceparent, type TraceContext } from '../wire/trace-context.ts';
import type { Transition } from './lifecycle/transition.ts';
import type { SendAttempt } from './webhooks/webhooks.ts';

export interface TracingOptions {
  sink: SpanSink;
  /** Share of the jobs without a trace of their client that get one, 0 to 1. */
  ratio: number;
}

export interface WebhookTrace {
  /** For the receiver. */
  context: TraceContext;
  end(result: SendAttempt): void;
}

export class JobTracing {
  readonly #options: TracingOptions;
  readonly #clock: Clock;

  constructor(options: TracingOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  /** Call this after the commit. `startMs`: when the submission arrived. */
  submitted(job: StoredJob, startMs: number): void {
    const trace = this.#find(job);
    if (!trace) return;
    this.#options.sink.add(describeSubmission(job, trace, this.#since(startMs)));
  }

  /** Call this after the commit. `startMs`: when the change began. */
  changed(before: StoredJob, transition: Transition, startMs: number): void {
    // Most changes are renewals, chunks and progress.
    if (before.status === 'IN_PROGRESS' && transition.job.status === 'IN_PROGRESS') {
      if (!transition.removed) return;
    }
    const trace = this.#find(before);
    if (!trace) return;
    const interval = this.#since(startMs);
    for (const span of describeChange(before, transition, { trace, interval })) {
      this.#options.sink.add(span);
    }
  }

  /** For the worker of the current attempt; undefined if the job is not sampled. */
  ofLease(job: StoredJob): TraceContext | undefined {
    const trace = this.#find(job);
    return trace && continueTrace(trace, leaseSpanId(job, job.attempt));
  }

  /** Undefined if the job is not sampled, or its record has expired. @throws StoreUnavailableError */
  async beginWebhook(delivery: StoredDelivery, store: Store): Promise<WebhookTrace | undefined> {
    const key = { endpointId: delivery.endpointId, id: delivery.jobId };
    const job: TracedJob | undefined = await store.read((tx) => tx.job(key));
    const trace = job && this.#find(job);
    if (!job || !trace) return undefined;
    const startMs = this.#clock.now();
    return {
      context: continueTrace(trace, webhookSpanId(job, delivery)),
      end: (result) => {
        const interval = this.#since(startMs);
        this.#options.sink.add(describeWebhook(delivery, job, { trace, interval, result }));
      },
    };
  }

  #find(job: TracedJob) {
    return findTrace(job, this.#options.ratio);
  }

  /** A clock that was set back must not make a span end before its start. */
  #since(startMs: number) {
    return { startMs, endMs: Math.max(startMs, this.#clock.now()) };
  }
}

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
    ...trace,
    ...interval,
    spanId: submitSpanId(job),
    name: 'millrace.submit',
    kind: 'server',
    error: undefined,
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
    ...belowSubmission(job, trace),
    ...interval,
    spanId: webhookSpanId(job, delivery),
    name: 'millrace.webhook',
    kind: 'client',
    error: result === '2xx' ? undefined : detail,
    attributes: {
      ...nameJob(job),
      'millrace.delivery': id,
      'millrace.webhook.attempt': attempts + 1,
      'millrace.webhook.result': result,
      'server.address': receiver,
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
    ...belowSubmission(before, trace),
    spanId: spanIdOf(before, `queue ${attempt}`),
    name: 'millrace.queue',
    kind: 'internal',
    error: undefined,
    startMs: before.queuedAt,
    endMs: (isLeased ? job.startedAt : null) ?? interval.endMs,
    attributes: {
      ...nameJob(before),
      'millrace.attempt': attempt,
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
    ...belowSubmission(job, trace),
    spanId: leaseSpanId(job, job.attempt),
    name: 'millrace.lease',
    kind: 'internal',
    startMs,
    endMs: endMs ?? startMs,
    error,
    attributes: {
      ...nameJob(job),
      'millrace.attempt': job.attempt,
      'millrace.outcome': outcome,
      ...(job.workerId !== null && { 'millrace.worker': job.workerId }),
      ...(code !== undefined && { 'error.type': code }),
    },
  };
}

/** From the arrival of the outcome until it is on disk. */
function describeReport(job: StoredJob, trace: JobTrace, interval: Interval): Span {
  return {
    ...trace,
    ...interval,
    parentSpanId: leaseSpanId(job, job.attempt),
    spanId: spanIdOf(job, `report ${job.attempt}`),
    name: 'millrace.report',
    kind: 'server',
    error: undefined,
    attributes: { ...nameJob(job), 'millrace.attempt': job.attempt },
  };
}

function judgeEnd(before: StoredJob, { job, removed }: Transition): Omit<LeaseEnd, 'endMs'> {
  if (removed) return { outcome: 'expired' };
  const last = job.history.at(-1);
  const failure = last === before.history.at(-1) ? undefined : last;
  const failed = failure && { code: failure.code, error: failure.message };
  const other = job.links?.wait ? 'waiting' : 'released';
  if (job.status === 'IN_QUEUE') return { outcome: failure ? 'failed' : other, ...failed };
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
