// The values in a transition: waits, deadlines, retention, and the record of an attempt.
import { describe, expect, it } from 'vitest';
import { type JobEvent, next } from '../../../../src/queue/lifecycle/lifecycle.ts';
import type { Transition } from '../../../../src/queue/lifecycle/transition.ts';
import type { QueueSettings } from '../../../../src/queue/settings.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import type { Outcome } from '../../../../src/wire/link/worker-link.ts';
import {
  makeJob,
  makeLease,
  momentAt,
  NOW,
  STARTED_AT,
  settings,
  states,
  T0,
} from '../../../support/store/job-states.ts';

const error = { code: 'handler_error' as const, message: 'no' };

function step(
  job: StoredJob,
  event: JobEvent,
  { now = NOW, ...changed }: { now?: number } & Partial<QueueSettings> = {},
): Transition {
  const decision = next(job, event, momentAt(now, changed));
  if ('refused' in decision) throw new Error(`refused: ${decision.refused}`);
  return decision;
}

function end(job: StoredJob, outcome: Outcome): StoredJob {
  return step(job, { type: 'outcome', seq: job.lastSeq + 1, outcome }).job;
}

function give(job: StoredJob, now = NOW): StoredJob {
  const lease = { token: 'token-3', workerId: 'w2', incarnation: 7, takeId: 'take-3' };
  return step(job, { type: 'lease', lease }, { now }).job;
}

describe('a lease', () => {
  it('is the next attempt, without any state of the previous attempt', () => {
    const before = { ...states.queued, lastSeq: 9, chunkCount: 4, chunkBytes: 80, executionMs: 5 };
    expect(give(before)).toMatchObject({
      attempt: 3,
      workerId: 'w2',
      startedAt: NOW,
      executionMs: null,
      lastSeq: 0,
      chunkCount: 0,
      chunkBytes: 0,
      lease: { until: NOW + settings.leaseMs, incarnation: 7, lost: null },
    });
  });

  it('has a deadline one grace period after the execution timeout', () => {
    const job = give({ ...states.queued, executionTimeoutMs: 2_000 });
    expect(job.deadlineAt).toBe(NOW + 2_000 + settings.timeoutGraceMs);
  });

  it('is due at its expiry, or at an earlier deadline', () => {
    expect(give(states.queued).dueAt).toBe(NOW + settings.leaseMs);
    expect(give({ ...states.queued, executionTimeoutMs: 1_000 }).dueAt).toBe(NOW + 11_000);
  });

  it('is extended from the moment of the renewal', () => {
    const { job } = step(states.running, { type: 'renew' }, { now: NOW + 3 });
    expect(job.lease?.until).toBe(NOW + 3 + settings.leaseMs);
    expect(job.deadlineAt).toBe(states.running.deadlineAt);
  });

  it('is extended by every report', () => {
    const { job } = step(
      states.running,
      { type: 'progress', seq: 1, value: '1' },
      { now: NOW + 3 },
    );
    expect(job.lease?.until).toBe(NOW + 3 + settings.leaseMs);
  });

  it('has the deadline of its attempt again if it is renewed after its expiry', () => {
    const lost = step(states.running, { type: 'clock' }, { now: NOW + 20_000 }).job;
    expect(lost.deadlineAt).toBeNull();
    const { job } = step(lost, { type: 'renew' }, { now: NOW + 21_000 });
    expect(job.deadlineAt).toBe(STARTED_AT + 600_000 + settings.timeoutGraceMs);
    expect(job.history).toEqual(states.running.history);
  });

  it('gets a new grace period if it is renewed after its timeout', () => {
    const lost = step(states.running, { type: 'clock' }, { now: NOW + 20_000 }).job;
    const late = STARTED_AT + 700_000;
    const { job } = step(lost, { type: 'renew' }, { now: late });
    expect(job.deadlineAt).toBe(late + settings.timeoutGraceMs);
  });

  it('has no deadline but its own expiry with an undelivered outcome', () => {
    const { job } = step(states.running, { type: 'awaiting_delivery', incarnation: 2 });
    expect(job.deadlineAt).toBeNull();
    expect(job.lease).toMatchObject({ incarnation: 2, until: NOW + settings.leaseMs });
    expect(job.dueAt).toBe(NOW + settings.leaseMs);
  });

  it('has no deadline either if a message revives it after its expiry', () => {
    const over = step(states.running, { type: 'awaiting_delivery', incarnation: 2 }).job;
    const now = NOW + settings.leaseMs;
    const lost = step(over, { type: 'clock' }, { now }).job;
    expect(lost.lease?.lost).toBe('failure');
    for (const event of [
      { type: 'renew' },
      { type: 'chunks', seq: 3, count: 0, bytes: 0 },
    ] as const) {
      const { job } = step(lost, event, { now: now + 1 });
      expect(job).toMatchObject({ status: 'IN_PROGRESS', deadlineAt: null });
      expect(job.dueAt).toBe(now + 1 + settings.leaseMs);
    }
  });
});

describe('a platform restart', () => {
  it('adds leaseMs to leases and deadlines that expired while the platform was down', () => {
    const now = STARTED_AT + 3_600_000;
    const { job } = step(states.running, { type: 'platform_away', uncountedMs: 0 }, { now });
    expect(job.lease?.until).toBe(now + settings.leaseMs);
    expect(job.deadlineAt).toBe(now + settings.leaseMs);
  });

  it('adds leaseMs to future leases and deadlines', () => {
    const { job } = step(states.running, { type: 'platform_away', uncountedMs: 0 });
    expect(job.lease?.until).toBe(STARTED_AT + 2 * settings.leaseMs);
    expect(job.deadlineAt).toBe(STARTED_AT + 610_000 + settings.leaseMs);
  });

  it('leaves the time to live unchanged', () => {
    const { job } = step(states.running, { type: 'platform_away', uncountedMs: 0 });
    expect(job.expiresAt).toBe(states.running.expiresAt);
  });
});

describe('the wait before an automatic retry', () => {
  const first = makeJob({ ...states.running, failures: 0, history: [], maxAttempts: 50 });
  const failed: Outcome = { kind: 'failed', executionMs: 1, error, retry: 'default' };

  it.each([
    [1, 1_000],
    [2, 2_000],
    [3, 4_000],
    [6, 32_000],
    [7, 60_000],
    [40, 60_000],
  ])('doubles with every failure, at most to a minute: failure %i, %i ms', (failures, waitMs) => {
    const job = end({ ...first, failures: failures - 1 }, failed);
    expect(job).toMatchObject({ failures, availableAt: NOW + waitMs, delayed: true });
    expect(job.dueAt).toBe(NOW + waitMs);
  });

  it('is zero after the first lost attempt, even after another failure', () => {
    const crashed = step(states.running, { type: 'crashed', alone: true, detail: '' }).job;
    expect(crashed).toMatchObject({ failures: 2, availableAt: NOW, delayed: false });
    const expired = step(states.running, { type: 'clock' }, { now: NOW + 20_000 }).job;
    expect(expired).toMatchObject({ failures: 2, availableAt: NOW + 20_000, delayed: false });
  });

  it('is also zero if a carrier reports the loss, and grows from the second loss', () => {
    const died = { code: 'worker_crashed', message: 'it pings no more' } as const;
    const once = end(first, { ...failed, error: died });
    expect(once).toMatchObject({ failures: 1, availableAt: NOW, delayed: false });
    const twice = end(give(once), { ...failed, error: died });
    expect(twice).toMatchObject({ failures: 2, availableAt: NOW + 2_000, delayed: true });
  });

  it('grows from the second lost attempt', () => {
    const once = step({ ...first }, { type: 'crashed', alone: true, detail: '' }).job;
    const twice = step(give(once), { type: 'crashed', alone: true, detail: '' }).job;
    expect(twice).toMatchObject({ failures: 2, availableAt: NOW + 2_000 });
  });

  it('is the wait of a RetryAfterError, however long', () => {
    const outcome: Outcome = { ...failed, retry: 'after', retryAfterMs: 300_000 };
    expect(end(first, outcome)).toMatchObject({ failures: 1, availableAt: NOW + 300_000 });
  });

  it('does not save a job from its last failure', () => {
    const outcome: Outcome = { ...failed, retry: 'after', retryAfterMs: 5 };
    expect(end({ ...first, maxAttempts: 1 }, outcome).status).toBe('FAILED');
  });
});

describe('an end', () => {
  const completed: Outcome = { kind: 'completed', executionMs: 12.6, output: 'chunks' };

  it.each([
    ['run' as const, 1_800_000],
    ['runsync' as const, 60_000],
  ])('keeps a job of %s for %i ms', (mode, retentionMs) => {
    expect(end({ ...states.running, mode }, completed).expiresAt).toBe(NOW + retentionMs);
  });

  it('never extends a job beyond its time to live', () => {
    const expiresAt = NOW + 5_000;
    expect(end({ ...states.running, expiresAt }, completed).expiresAt).toBe(expiresAt);
  });

  it('has whole milliseconds of execution time and the place of the output', () => {
    const job = end(states.running, completed);
    expect(job).toMatchObject({ executionMs: 13, outputKind: 'chunks', endedAt: NOW, error: null });
  });

  it('completes a job whose worker reports it after its execution timeout and its lease', () => {
    const now = STARTED_AT + 700_000;
    const lost = step(states.running, { type: 'clock' }, { now: NOW + 20_000 }).job;
    const outcome: Outcome = { ...completed, executionMs: 599_000 };
    const { job, retried } = step(lost, { type: 'outcome', seq: 1, outcome }, { now });
    expect(job).toMatchObject({ status: 'COMPLETED', executionMs: 599_000, failures: 1 });
    expect(retried).toBe(-1);
  });

  it('has the last error and the history of all attempts after a failure', () => {
    const job = end(states.running, { kind: 'failed', executionMs: 1, error, retry: 'never' });
    expect(job.error).toEqual({
      ...error,
      attempts: [
        {
          ...{ attempt: 1, code: 'handler_error', message: 'one', workerId: 'w0' },
          ...{ startedAt: T0, endedAt: T0 + 1_000 },
        },
        {
          ...{ attempt: 2, code: 'handler_error', message: 'no', workerId: 'w1' },
          ...{ startedAt: STARTED_AT, endedAt: NOW },
        },
      ],
    });
  });

  it('does not count as a run since the previous attempt after a cancellation in the queue', () => {
    const { job } = step(states.queued, { type: 'cancel' });
    expect(job).toMatchObject({ startedAt: null, endedAt: NOW });
  });

  it.each(['failedKept', 'cancelledKept', 'timedOutKept'] as const)(
    'keeps its status after a late outcome: %s',
    (name) => {
      const job = end(states[name], completed);
      expect(job).toEqual({
        ...states[name],
        lease: null,
        lastSeq: 1,
        executionMs: 13,
        dueAt: job.dueAt,
      });
    },
  );

  it('keeps the lease after too many chunks until the worker has stopped or the lease expires', () => {
    const lost = { ...states.lostAsFailure };
    const { job } = step(
      lost,
      { type: 'chunks', seq: 1, count: 1, bytes: 11 },
      { maxChunkBytes: 10 },
    );
    expect(job.error).toMatchObject({ code: 'output_too_large' });
    expect(job.error?.message).toContain('11 bytes');
    expect(job.error?.message).toContain('10');
    expect(job.lease).toMatchObject({ lost: null, until: NOW + settings.leaseMs });
    expect(job.dueAt).toBe(NOW + settings.leaseMs);
  });
});

describe('a requested retry', () => {
  it('resets the job, with its time to live from now', () => {
    const { job } = step(
      {
        ...{ ...states.timedOut, failures: 2, releases: 1, ttlMs: 50_000 },
        ...{ chunkCount: 3, chunkBytes: 60, outputKind: 'chunks' },
      },
      { type: 'retry' },
    );
    expect(job).toMatchObject({
      status: 'IN_QUEUE',
      attempt: 2,
      position: states.timedOut.position,
      queuedAt: NOW,
      availableAt: NOW,
      delayed: false,
      expiresAt: NOW + 50_000,
      startedAt: null,
      endedAt: null,
      executionMs: null,
      failures: 0,
      releases: 0,
      chunkCount: 0,
      chunkBytes: 0,
      outputKind: 'none',
      error: null,
      history: [],
    });
  });
});

describe('a time to live', () => {
  it('counts from now and replaces the earlier value, also a retention', () => {
    for (const job of [states.queued, states.running, states.completed]) {
      const changed = step(job, { type: 'set_ttl', ttlMs: 10_000 }).job;
      expect(changed).toMatchObject({ status: job.status, expiresAt: NOW + 10_000, ttlMs: 10_000 });
    }
  });

  it('counts for a delayed job from when the job is due', () => {
    const { availableAt } = states.delayed;
    const { job } = step(states.delayed, { type: 'set_ttl', ttlMs: 10_000 });
    expect(job).toMatchObject({ expiresAt: availableAt + 10_000, dueAt: availableAt });
  });

  it('does not run during the wait before a retry, however long', () => {
    const retryAfterMs = 3 * 86_400_000;
    const outcome = {
      kind: 'failed',
      executionMs: 1,
      error,
      retry: 'after',
      retryAfterMs,
    } as const;
    const job = end(states.running, outcome);
    expect(job.expiresAt).toBe(states.running.expiresAt + retryAfterMs);
    const due = step(job, { type: 'clock' }, { now: NOW + retryAfterMs });
    expect(due).toMatchObject({ removed: false, job: { delayed: false, status: 'IN_QUEUE' } });
  });
});

describe('a suspect', () => {
  const outcome = { kind: 'released', reason: 'suspect' } as const;

  it.each([
    ['lost its process together with other jobs', { type: 'crashed', alone: false, detail: '' }],
    ['was released as a suspect', { type: 'outcome', seq: 1, outcome }],
  ] as const)('runs alone after it %s, even after a release', (_, event) => {
    const suspect = step(states.running, event).job;
    expect(suspect).toMatchObject({ solo: true, failures: 1, releases: 2, availableAt: NOW });
    const again = step(give(suspect), { type: 'worker_left' }).job;
    expect(again.solo).toBe(true);
  });
});

describe('a job', () => {
  it.each([
    'thread_crashed',
    'handler_exited',
    'uncaught_exception',
    'unhandled_rejection',
    'out_of_memory',
    'memory_limit_exceeded',
    'model_process_crashed',
    'gpu_context_lost',
    'gpu_out_of_memory',
  ] as const)('runs alone next if it failed with %s, which concerns other jobs too', (code) => {
    const error = { code, message: 'it went' };
    const outcome = { kind: 'failed', executionMs: 1, error, retry: 'default' } as const;
    const after = step(states.running, { type: 'outcome', seq: 1, outcome }).job;
    expect(after).toMatchObject({ status: 'IN_QUEUE', solo: true });
  });

  it.each([
    ['thread_crashed', true],
    ['model_process_crashed', true],
    ['gpu_context_lost', true],
    ['gpu_out_of_memory', false],
    ['handler_error', false],
  ] as const)(
    'goes after %s behind the others of its group (%s) if it held them up',
    (code, isBehind) => {
      const error = { code, message: 'it went' };
      const outcome = { kind: 'failed', executionMs: 1, error, retry: 'default' } as const;
      const { job } = step(states.running, { type: 'outcome', seq: 1, outcome });
      const place = isBehind ? NOW * 1_000 : states.running.place;
      expect(job).toMatchObject({ status: 'IN_QUEUE', place });
    },
  );

  it.each([true, false])(
    'goes behind the others after a crash of its process (alone: %s)',
    (alone) => {
      const { job } = step(states.running, { type: 'crashed', alone, detail: '' });
      const place = alone ? NOW * 1_000 : states.running.place;
      expect(job).toMatchObject({ status: 'IN_QUEUE', solo: true, place });
    },
  );

  it('runs beside others if it threw, because it affected no other job', () => {
    const error = { code: 'handler_error', message: 'no' } as const;
    const outcome = { kind: 'failed', executionMs: 1, error, retry: 'default' } as const;
    expect(step(states.running, { type: 'outcome', seq: 1, outcome }).job.solo).toBe(false);
  });

  it('runs alone next if it was lost with other jobs three times', () => {
    const outcome = { kind: 'released', reason: 'neighbour' } as const;
    const ruin = (releases: number) => {
      const job = makeJob({ ...states.running, releases });
      return step(job, { type: 'outcome', seq: 1, outcome }).job;
    };
    expect([0, 1, 2].map((releases) => ruin(releases).solo)).toEqual([false, false, true]);
  });

  it('runs beside others if stopping workers released it', () => {
    const outcome = { kind: 'released', reason: 'drain' } as const;
    const job = makeJob({ ...states.running, releases: 5 });
    expect(step(job, { type: 'outcome', seq: 1, outcome }).job.solo).toBe(false);
  });
});

describe('the due time of a job', () => {
  it('does not depend on a lease that is already lost', () => {
    const job = makeJob({
      ...states.lostAsFailure,
      lease: makeLease({ until: T0, lost: 'failure' }),
    });
    expect(job.dueAt).toBe(job.expiresAt);
  });
});
