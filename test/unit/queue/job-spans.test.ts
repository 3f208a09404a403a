// The spans of a job, from real transitions of its lifecycle.
import { describe, expect, it } from 'vitest';
import {
  continueTrace,
  describeChange,
  describeSubmission,
  findTrace,
  leaseSpanId,
  type Span,
} from '../../../src/queue/job-tracing.ts';
import { type JobEvent, next } from '../../../src/queue/lifecycle/lifecycle.ts';
import type { Transition } from '../../../src/queue/lifecycle/transition.ts';
import type { StoredJob } from '../../../src/store/store.ts';
import { makeJob, momentAt, settings, T0 } from '../../support/store/job-states.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const CLIENT = 'b7ad6b7169203331';
const traced = { traceparent: `00-${TRACE_ID}-${CLIENT}-01` };

/** Applies events to a job and collects its spans, one second each. */
class History {
  job: StoredJob;
  readonly spans: Span[] = [];
  now = T0;

  constructor(fields: Partial<StoredJob> = {}) {
    this.job = makeJob({ ...traced, ...fields });
  }

  apply(event: JobEvent, afterMs = 1_000): this {
    this.now += afterMs;
    const decision = next(this.job, event, momentAt(this.now));
    if ('refused' in decision) throw new Error(decision.refused);
    this.#note(this.job, decision);
    this.job = decision.job;
    return this;
  }

  lease(workerId = 'w1'): this {
    const lease = { token: `t${this.job.attempt + 1}`, workerId, incarnation: 1, takeId: 'take' };
    return this.apply({ type: 'lease', lease });
  }

  get names(): string[] {
    return this.spans.map(({ attributes, name }) => {
      const outcome = attributes['millrace.outcome'];
      const attempt = attributes['millrace.attempt'];
      return [name.slice('millrace.'.length), attempt, outcome].filter(Boolean).join(' ');
    });
  }

  #note(before: StoredJob, transition: Transition): void {
    const trace = findTrace(before, 0);
    if (!trace) return;
    const interval = { startMs: this.now, endMs: this.now + 3 };
    this.spans.push(...describeChange(before, transition, { trace, interval }));
  }
}

const completed: JobEvent = {
  ...{ type: 'outcome', seq: 1 },
  outcome: { kind: 'completed', output: 'value', executionMs: 5 },
};
const failed: JobEvent = {
  ...{ type: 'outcome', seq: 1 },
  outcome: {
    ...{ kind: 'failed', retry: 'default', executionMs: 5 },
    error: { code: 'handler_error', message: 'no' },
  },
};

describe('the spans of a job', () => {
  it('are its waits, leases and reports, each below its parent', () => {
    const history = new History().lease().apply(failed);
    history.apply({ type: 'clock' }, 60_000).lease().apply(completed);
    expect(history.names).toEqual([
      ...['queue 1', 'lease 1 failed', 'report 1', 'queue 2', 'lease 2 completed', 'report 2'],
    ]);
    const trace = findTrace(history.job, 0);
    if (!trace) throw new Error('not sampled');
    const interval = { startMs: T0, endMs: T0 + 2 };
    const submit = describeSubmission(history.job, trace, interval);
    expect(submit).toMatchObject({
      traceId: TRACE_ID,
      parentSpanId: CLIENT,
      name: 'millrace.submit',
    });
    const [wait, lease, report, again] = history.spans;
    expect(wait).toMatchObject({ parentSpanId: submit.spanId, startMs: T0, endMs: T0 + 1_000 });
    expect(lease).toMatchObject({
      ...{ parentSpanId: submit.spanId, startMs: T0 + 1_000, endMs: T0 + 2_003, error: 'no' },
      attributes: { 'error.type': 'handler_error', 'millrace.worker': 'w1' },
    });
    expect(lease?.spanId).toBe(leaseSpanId(history.job, 1));
    expect(report).toMatchObject({ parentSpanId: lease?.spanId, startMs: T0 + 2_000 });
    expect(again?.attributes['millrace.delay_ms']).toBe(1_000);
    const ids = history.spans.map(({ spanId }) => spanId);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('have one span of a lease that expired, whether its worker comes back or not', () => {
    const expire = (history: History) =>
      history
        .lease()
        .apply({ type: 'renew' })
        .apply({ type: 'clock' }, settings.leaseMs + 1);
    const gone = expire(new History());
    expect(gone.names).toEqual(['queue 1']);
    expect(gone.lease('w2').names).toEqual(['queue 1', 'lease 1 lost', 'queue 2']);
    expect(gone.spans[1]?.endMs).toBe(T0 + 2_000 + settings.leaseMs);
    expect(expire(new History()).apply(completed).names).toEqual([
      ...['queue 1', 'lease 1 completed', 'report 1'],
    ]);
    const back = expire(new History()).apply({ type: 'renew' }).apply(failed);
    expect(back.names).toEqual(['queue 1', 'lease 1 failed', 'report 1']);
    const cancelled = expire(new History()).apply({ type: 'cancel' });
    expect(cancelled.names).toEqual(['queue 1', 'lease 1 lost', 'queue 2 cancelled']);
  });

  it('end with the job, also if nothing was reported', () => {
    expect(new History().apply({ type: 'cancel' }).names).toEqual(['queue 1 cancelled']);
    expect(new History().apply({ type: 'endpoint_deleted' }).names).toEqual(['queue 1 expired']);
    const running = new History().lease().apply({ type: 'cancel' });
    expect(running.names).toEqual(['queue 1', 'lease 1 cancelled']);
    expect(running.apply(completed).names).toHaveLength(2);
    const late = new History().lease().apply({ type: 'clock' }, 700_000);
    expect(late.names).toEqual(['queue 1', 'lease 1 timed_out']);
    const left = new History().lease().apply({ type: 'worker_left' });
    expect(left.names).toEqual(['queue 1', 'lease 1 released']);
  });

  it('do not come from renewals, progress and chunks', () => {
    const history = new History().lease().apply({ type: 'renew' });
    history.apply({ type: 'progress', seq: 1, value: '1' });
    history.apply({ type: 'chunks', seq: 2, count: 1, bytes: 5 });
    expect(history.names).toEqual(['queue 1']);
  });
});

describe('the trace of a job', () => {
  it('is the client’s if the client has sampled it, and none otherwise', () => {
    const trace = findTrace(makeJob({ ...traced, tracestate: 'a=1' }), 0);
    expect(trace).toEqual({ traceId: TRACE_ID, parentSpanId: CLIENT, tracestate: 'a=1' });
    expect(trace && continueTrace(trace, '1'.repeat(16))).toEqual({
      traceparent: `00-${TRACE_ID}-${'1'.repeat(16)}-01`,
      tracestate: 'a=1',
    });
    const unsampled = makeJob({ traceparent: `00-${TRACE_ID}-${CLIENT}-00` });
    expect(findTrace(unsampled, 1)).toBeUndefined();
  });

  it('is given to the chosen share of jobs without a client’s, always the same ones', () => {
    const jobs = Array.from({ length: 2_000 }, (_, number) => makeJob({ id: `job-${number}` }));
    expect(jobs.every((job) => findTrace(job, 1) !== undefined)).toBe(true);
    expect(jobs.every((job) => findTrace(job, 0) === undefined)).toBe(true);
    const chosen = jobs.filter((job) => findTrace(job, 0.25) !== undefined);
    expect(chosen.length).toBeGreaterThan(400);
    expect(chosen.length).toBeLessThan(600);
    expect(jobs.filter((job) => findTrace(job, 0.25) !== undefined)).toEqual(chosen);
    expect(findTrace(jobs[0] ?? makeJob(), 1)).toMatchObject({ parentSpanId: undefined });
  });
});
