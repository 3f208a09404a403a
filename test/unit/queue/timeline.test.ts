// The story of a job, told from its row.
import { describe, expect, it } from 'vitest';
import { type JobEvent, next } from '../../../src/queue/lifecycle/lifecycle.ts';
import { describeTimeline } from '../../../src/queue/timeline.ts';
import type { StoredJob } from '../../../src/store/store.ts';
import type { Outcome } from '../../../src/wire/link/worker-link.ts';
import { makeJob, momentAt, settings, T0 } from '../../support/store/job-states.ts';

/** A job to which events happen, one each second unless the event says otherwise. */
class Story {
  job: StoredJob = makeJob({ maxAttempts: 3 });
  now = T0;

  happen(event: JobEvent, afterMs = 1_000): this {
    this.now += afterMs;
    const decision = next(this.job, event, momentAt(this.now));
    if ('refused' in decision) throw new Error(decision.refused);
    this.job = decision.job;
    return this;
  }

  lease(workerId: string, afterMs?: number): this {
    if (this.job.delayed) this.happen({ type: 'clock' }, this.job.availableAt - this.now);
    const lease = { token: `t-${workerId}`, workerId, incarnation: 1, takeId: 'x' };
    return this.happen({ type: 'lease', lease }, afterMs);
  }

  end(outcome: Outcome): this {
    return this.happen({ type: 'outcome', seq: this.job.lastSeq + 1, outcome });
  }

  stream(count: number): this {
    return this.happen({ type: 'chunks', seq: this.job.lastSeq + 1, count, bytes: 2 });
  }

  /** Seconds since the submission, event, attempt (with its number in a later run) and worker. */
  get told(): string[] {
    return describeTimeline(this.job).map(
      ({ at, attempt, event, run, runAttempt, status, workerId }) =>
        [(at - T0) / 1_000, event, attempt, run && `r${run}`, runAttempt, workerId, status]
          .filter((part) => part !== undefined)
          .join(' '),
    );
  }
}

const error = { code: 'handler_error', message: 'no' } as const;
const failed: Outcome = { kind: 'failed', executionMs: 1, error, retry: 'after', retryAfterMs: 0 };
const fatal: Outcome = { ...failed, retry: 'never' };
const completed: Outcome = { kind: 'completed', executionMs: 1, output: 'value' };
const released: Outcome = { kind: 'released', reason: 'drain' };

describe('the timeline of a job', () => {
  it('has its submission, its attempt and its end', () => {
    const story = new Story();
    expect(story.told).toEqual(['0 submitted']);
    expect(story.lease('w1').told).toEqual(['0 submitted', '1 started 1 w1']);
    expect(story.end(completed).told).toEqual([
      '0 submitted',
      '1 started 1 w1',
      '2 ended 1 COMPLETED',
    ]);
  });

  it('has start and end of each failed attempt', () => {
    const story = new Story().lease('w1').end(failed).lease('w2').end(failed).lease('w3');
    expect(story.told).toEqual([
      '0 submitted',
      '1 started 1 w1',
      '2 failed 1 w1',
      '3 started 2 w2',
      '4 failed 2 w2',
      '4 queued',
      '5 started 3 w3',
    ]);
    expect(story.end({ ...failed, retry: 'never' }).told.slice(-3)).toEqual([
      '5 started 3 w3',
      '6 failed 3 w3',
      '6 ended 3 FAILED',
    ]);
  });

  it('says when a delayed attempt may start', () => {
    const story = new Story().lease('w1').end({ ...failed, retryAfterMs: 30_000 });
    expect(story.told.slice(-2)).toEqual(['2 queued', '32 due']);
  });

  it('has a lease that was lost', () => {
    const story = new Story().lease('w1').happen({ type: 'renew' });
    story.happen({ type: 'clock' }, settings.leaseMs);
    const lostAt = (story.now - T0) / 1_000;
    expect(story.told).toContain(`${lostAt} lease_lost 1 w1`);
    expect(describeTimeline(story.job).find(({ event }) => event === 'lease_lost')).toMatchObject({
      code: 'lease_expired',
    });
  });

  it('has an attempt that its worker gave back, also while the next one runs', () => {
    const story = new Story().lease('w1').end(released);
    const first = ['0 submitted', '1 started 1 w1', '2 released 1 w1'];
    expect(story.told).toEqual(first);
    expect(story.lease('w2').told).toEqual([...first, '3 started 2 w2']);
  });

  it('has each attempt that was given back, between failures too', () => {
    const story = new Story().lease('w1').end(released).lease('w2').end(failed).lease('w3');
    story.happen({ type: 'crashed', alone: false, detail: 'x' }).lease('w4').end(completed);
    expect(story.told).toEqual([
      '0 submitted',
      '1 started 1 w1',
      '2 released 1 w1',
      '3 started 2 w2',
      '4 failed 2 w2',
      '5 started 3 w3',
      '6 released 3 w3',
      '7 started 4 w4',
      '8 ended 4 COMPLETED',
    ]);
  });

  it('keeps the last few attempts that were given back', () => {
    const story = new Story();
    for (let i = 1; i <= 8; i++) story.lease(`w${i}`).end(released);
    const returns = story.told.filter((line) => line.includes('released'));
    expect(returns.map((line) => line.split(' ')[2])).toEqual(['4', '5', '6', '7', '8']);
    expect(story.told.filter((line) => line.includes('started'))).toHaveLength(5);
  });

  it('has no loss of a lease that was renewed after all', () => {
    const story = new Story().lease('w1').happen({ type: 'clock' }, settings.leaseMs);
    expect(story.told.at(-1)).toMatch(/lease_lost 1 w1$/);
    expect(story.happen({ type: 'renew' }).told).toEqual(['0 submitted', '1 started 1 w1']);
  });

  it('has the first chunk of each attempt', () => {
    const story = new Story().lease('w1').stream(1).stream(2).end(failed).lease('w2').stream(1);
    expect(story.told.filter((line) => line.includes('chunk'))).toEqual([
      '2 first_chunk 1',
      '6 first_chunk 2',
    ]);
    expect(story.told.indexOf('2 first_chunk 1')).toBe(story.told.indexOf('1 started 1 w1') + 1);
  });

  it('says how the worker stopped a cancelled job and one that ran too long', () => {
    const story = new Story().lease('w1').happen({ type: 'cancel' });
    story.end({ kind: 'cancelled', executionMs: 1, stopped: 'thread' });
    expect(describeTimeline(story.job).slice(-2)).toMatchObject([
      { event: 'ended', status: 'CANCELLED' },
      { event: 'stopped', attempt: 1, workerId: 'w1', level: 'thread' },
    ]);
    const late = new Story().lease('w1');
    late.end({ kind: 'timed_out', executionMs: 1, error, stopped: 'signal' });
    expect(late.told.slice(-3)).toEqual(['2 stopped 1 w1', '2 failed 1 w1', '2 ended 1 TIMED_OUT']);
  });

  it.each([completed, released, failed])(
    'says how long an attempt waited for its model process, $kind',
    (outcome) => {
      const story = new Story().lease('w1').stream(1);
      story.happen({ type: 'outcome', seq: 2, outcome, waitedMs: 2_500 });
      const [, started, wait, chunk] = describeTimeline(story.job);
      expect(started).toMatchObject({ event: 'started', attempt: 1 });
      expect(wait).toMatchObject({
        event: 'model_wait',
        attempt: 1,
        waitedMs: 2_500,
        at: started?.at,
      });
      expect(wait?.message).toBe('waited 2.5 s for the model process');
      expect(chunk).toMatchObject({ event: 'first_chunk' });
    },
  );

  it('writes nothing for a plain job', () => {
    expect(new Story().lease('w1').end(completed).job.notes).toEqual([]);
  });

  it('has the cancel of a queued and of a running job', () => {
    expect(new Story().happen({ type: 'cancel' }).told).toEqual([
      '0 submitted',
      '1 ended CANCELLED',
    ]);
    const running = new Story().lease('w1').happen({ type: 'cancel' });
    expect(running.told).toEqual(['0 submitted', '1 started 1 w1', '2 ended 1 CANCELLED']);
  });

  it('numbers the attempts after a retry by a client from 1, and keeps the earlier ones', () => {
    const story = new Story().lease('w1').end(released).lease('w2').end(fatal);
    expect(story.happen({ type: 'retry' }).told).toEqual([
      '0 submitted',
      '1 started 1 w1',
      '2 released 1 w1',
      '3 started 2 w2',
      '4 failed 2 w2',
      '5 retried 2 r2',
    ]);
    const before = story.told;
    story.lease('w3').stream(1).end(failed).lease('w4').end(fatal);
    expect(story.told).toEqual([
      ...before,
      '6 started 3 r2 1 w3',
      '7 first_chunk 3 r2 1',
      '8 failed 3 r2 1 w3',
      '8 queued',
      '9 started 4 r2 2 w4',
      '10 failed 4 r2 2 w4',
      '10 ended 4 r2 2 FAILED',
    ]);
    expect(story.job.error?.attempts).toMatchObject([
      { attempt: 3, run: 2, runAttempt: 1 },
      { attempt: 4, run: 2, runAttempt: 2 },
    ]);
    story.happen({ type: 'retry' }).lease('w5').end(completed);
    expect(story.told.slice(-3)).toEqual([
      '11 retried 4 r3',
      '12 started 5 r3 1 w5',
      '13 ended 5 r3 1 COMPLETED',
    ]);
  });

  it('keeps code and message of the failures of an earlier run', () => {
    const story = new Story().lease('w1').end(fatal).happen({ type: 'retry' });
    const kept = describeTimeline(story.job).find(({ event }) => event === 'failed');
    expect(kept).toMatchObject(error);
  });

  it('keeps the last few attempts of earlier runs', () => {
    const story = new Story();
    for (let i = 1; i <= 20; i++) story.lease(`w${i}`).end(fatal).happen({ type: 'retry' });
    expect(story.job.notes).toHaveLength(15);
    const failures = story.told.filter((line) => line.includes('failed'));
    expect(failures.map((line) => line.split(' ').slice(2).join(' '))).toEqual([
      '16 r16 1 w16',
      '17 r17 1 w17',
      '18 r18 1 w18',
      '19 r19 1 w19',
      '20 r20 1 w20',
    ]);
  });

  it('tells the retry of an earlier row, which has no notes, as a queueing', () => {
    const story = new Story().lease('w1').end(fatal).happen({ type: 'retry' });
    story.job = { ...story.job, notes: [] };
    expect(story.told).toEqual(['0 submitted', '3 queued']);
    expect(story.lease('w2').told).toEqual(['0 submitted', '3 queued', '4 started 2 w2']);
  });
});
