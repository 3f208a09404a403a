// Passes the spans of jobs on as they end. job-spans.ts makes them.
import type { Clock } from '../../base/clock.ts';
import type { Store, StoredDelivery, StoredJob } from '../../store/store.ts';
import type { TraceContext } from '../../wire/trace-context.ts';
import type { Transition } from '../lifecycle/transition.ts';
import type { SendAttempt } from '../webhooks/webhooks.ts';
import {
  continueTrace,
  describeChange,
  describeSubmission,
  describeWebhook,
  findTrace,
  leaseSpanId,
  type SpanSink,
  type TracedJob,
  webhookSpanId,
} from './job-spans.ts';

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
