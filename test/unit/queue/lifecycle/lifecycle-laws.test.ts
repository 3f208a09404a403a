// Laws that hold for every sequence of events: drawn at random, in time that only moves on.

import { describe, expect, it } from 'vitest';
import { type JobEvent, next } from '../../../../src/queue/lifecycle/lifecycle.ts';
import { holdsLiveLease } from '../../../../src/queue/lifecycle/transition.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import { isTerminal } from '../../../../src/wire/job/job.ts';
import type { Outcome } from '../../../../src/wire/link/worker-link.ts';
import { fc } from '../../../support/properties.ts';
import { makeJob, momentAt, settings, T0 } from '../../../support/store/job-states.ts';

/** What can happen; the driver makes the event of it that the state allows. */
type Move =
  | { name: 'lease' | 'renew' | 'not_received' | 'worker_left' | 'cancel' | 'retry' }
  | { name: 'awaiting_delivery' | 'platform_away' | 'chunks' | 'log' | 'progress' }
  | { name: 'crashed'; alone: boolean }
  | { name: 'outcome'; outcome: Outcome }
  | { name: 'wait'; ms: number }
  | { name: 'wait_until_due' };

const error = { code: 'handler_error' as const, message: 'no' };

const uncounted: Outcome = {
  ...{ kind: 'failed', executionMs: 5, error },
  ...{ retry: 'after', retryAfterMs: 0, retryCounts: false },
};

const outcomes = fc.constantFrom<Outcome>(
  { kind: 'completed', executionMs: 5, output: 'value' },
  { kind: 'failed', executionMs: 5, error, retry: 'default' },
  { kind: 'failed', executionMs: 5, error, retry: 'never' },
  { kind: 'failed', executionMs: 5, error, retry: 'after', retryAfterMs: 90_000 },
  uncounted,
  { kind: 'timed_out', executionMs: 5, error, stopped: 'thread' },
  { kind: 'cancelled', executionMs: 5, stopped: 'signal' },
  { kind: 'released', reason: 'neighbour' },
  { kind: 'released', reason: 'suspect' },
);

const plain = fc.constantFrom<Move>(
  { name: 'renew' },
  { name: 'not_received' },
  { name: 'worker_left' },
  { name: 'awaiting_delivery' },
  { name: 'platform_away' },
  { name: 'chunks' },
  { name: 'log' },
  { name: 'progress' },
);

const moves: fc.Arbitrary<Move> = fc.oneof(
  { weight: 4, arbitrary: fc.constant<Move>({ name: 'lease' }) },
  { weight: 3, arbitrary: plain },
  {
    weight: 2,
    arbitrary: fc.record({ name: fc.constant('crashed' as const), alone: fc.boolean() }),
  },
  { weight: 2, arbitrary: fc.record({ name: fc.constant('outcome' as const), outcome: outcomes }) },
  { weight: 3, arbitrary: fc.constant<Move>({ name: 'wait_until_due' }) },
  {
    weight: 1,
    arbitrary: fc.record({
      name: fc.constant('wait' as const),
      ms: fc.integer({ min: 0, max: 40_000 }),
    }),
  },
);
const clientMoves = fc.oneof(
  { weight: 8, arbitrary: moves },
  { weight: 1, arbitrary: fc.constantFrom<Move>({ name: 'cancel' }, { name: 'retry' }) },
);

interface Step {
  before: StoredJob;
  event: JobEvent;
  after: StoredJob;
  retried: number;
  removed: boolean;
  now: number;
}

function toEvent(
  move: Exclude<Move, { name: 'wait' | 'wait_until_due' }>,
  job: StoredJob,
): JobEvent {
  const seq = job.lastSeq + 1;
  const token = `token-${job.attempt + 1}`;
  switch (move.name) {
    case 'lease':
      return { type: 'lease', lease: { token, workerId: 'w', incarnation: 1, takeId: token } };
    case 'awaiting_delivery':
      return { type: 'awaiting_delivery', incarnation: 2 };
    case 'platform_away':
      return { type: 'platform_away', uncountedMs: 7_000 };
    case 'crashed':
      // The queue never runs such a job beside another one.
      return { type: 'crashed', alone: move.alone || job.solo, detail: '' };
    case 'chunks':
      return { type: 'chunks', seq, count: 1, bytes: 30 };
    case 'log':
      return { type: 'log', seq, bytes: 5, dropped: 0 };
    case 'progress':
      return { type: 'progress', seq, value: '1' };
    case 'outcome':
      return { type: 'outcome', seq, outcome: move.outcome };
    default:
      return { type: move.name };
  }
}

/** Only the holder of a lease can say these; the queue looks at the token before. */
const fromHolder = new Set([
  'renew',
  'not_received',
  'worker_left',
  'awaiting_delivery',
  'crashed',
]);
const reports = new Set(['chunks', 'log', 'progress', 'outcome']);

function isPossible(job: StoredJob, { type }: JobEvent): boolean {
  if (fromHolder.has(type)) return job.lease !== null;
  if (!reports.has(type)) return true;
  return job.lease !== null && (type === 'outcome' || !isTerminal(job.status));
}

/** Drives a fresh job through the moves, with the sweeper at every moment that it asks for. */
function drive(list: Move[], fields: Partial<StoredJob> = {}): Step[] {
  let job = makeJob(fields);
  let now = T0;
  const steps: Step[] = [];
  const put = (event: JobEvent): boolean => {
    if (!isPossible(job, event)) return true;
    const decision = next(job, event, momentAt(now, { maxChunkBytes: 200 }));
    if ('refused' in decision) return true;
    const { retried, removed } = decision;
    steps.push({ before: job, event, after: decision.job, retried, removed, now });
    job = decision.job;
    return !removed;
  };
  for (const move of list) {
    if (move.name === 'wait' || move.name === 'wait_until_due') {
      now = move.name === 'wait' ? now + move.ms : Math.max(now, job.dueAt);
    } else if (!put(toEvent(move, job))) return steps;
    while (job.dueAt <= now) if (!put({ type: 'clock' })) return steps;
  }
  return steps;
}

function checkAlways(list: fc.Arbitrary<Move>, check: (steps: Step[]) => void): void {
  const retry = fc.constantFrom<StoredJob['retry']>(
    null,
    { own: { retryOn: ['execution_timeout', 'handler_error', 'output_too_large'] } },
    { own: { maxElapsedMs: 60_000 } },
    { own: { noRetryOn: ['lease_expired', 'handler_error'] } },
  );
  const fields = fc.record({ maxAttempts: fc.integer({ min: 1, max: 4 }), retry });
  fc.assert(
    fc.property(fc.array(list, { maxLength: 60 }), fields, (moves, job) =>
      check(drive(moves, job)),
    ),
    { numRuns: 400 },
  );
}

describe('in every sequence of events', () => {
  it('keeps an end final, except for a retry of a failed or timed-out job', () => {
    checkAlways(clientMoves, (steps) => {
      for (const { before, event, after } of steps) {
        if (!isTerminal(before.status) || event.type === 'retry') continue;
        expect(after.status).toBe(before.status);
      }
    });
  });

  it('has every event processed by the sweeper in time', () => {
    checkAlways(clientMoves, (steps) => {
      for (const { after } of steps) {
        expect(after.dueAt).toBeLessThanOrEqual(after.expiresAt);
        if (after.delayed) expect(after.dueAt).toBeLessThanOrEqual(after.availableAt);
        if (after.deadlineAt !== null) expect(after.dueAt).toBeLessThanOrEqual(after.deadlineAt);
        if (after.lease && after.lease.lost === null) {
          expect(after.dueAt).toBeLessThanOrEqual(after.lease.until);
        }
      }
    });
  });

  it('keeps failures and releases between zero and their limits', () => {
    checkAlways(clientMoves, (steps) => {
      for (const { after } of steps) {
        expect(after.failures).toBeGreaterThanOrEqual(0);
        expect(after.failures).toBeLessThanOrEqual(after.maxAttempts);
        expect(after.history).toHaveLength(after.failures);
        expect(after.releases).toBeGreaterThanOrEqual(0);
        expect(after.releases).toBeLessThanOrEqual(settings.maxReleases);
        if (!isTerminal(after.status)) expect(after.failures).toBeLessThan(after.maxAttempts);
      }
    });
  });

  it('has a job in progress exactly while it has a live lease', () => {
    checkAlways(clientMoves, (steps) => {
      for (const { after } of steps) {
        expect(after.status === 'IN_PROGRESS').toBe(
          after.lease?.lost === null && !isTerminal(after.status),
        );
        expect(holdsLiveLease(after)).toBe(after.status === 'IN_PROGRESS');
        if (after.delayed) expect(after.status).toBe('IN_QUEUE');
        if (isTerminal(after.status)) expect(after.lease?.lost ?? null).toBeNull();
      }
    });
  });

  it('counts as retries the failures that did not end the job plus the requested retries', () => {
    checkAlways(clientMoves, (steps) => {
      let sum = 0;
      let forgotten = 0;
      let asked = 0;
      for (const { before, event, after, retried } of steps) {
        sum += retried;
        if (event.type === 'retry') {
          asked++;
          // The failure that ended it made no retry.
          forgotten += before.failures - 1;
        }
        const ending = after.status === 'FAILED' || after.status === 'TIMED_OUT' ? 1 : 0;
        expect(sum).toBe(forgotten + asked + after.failures - ending);
      }
    });
  });

  it('leaves no trace of a lost lease that is renewed again in the counters', () => {
    checkAlways(clientMoves, (steps) => {
      for (const [index, { before: lost, event, after }] of steps.entries()) {
        if (event.type !== 'renew' || !lost.lease?.lost) continue;
        const loss = steps
          .slice(0, index)
          .findLast((step) => !step.before.lease?.lost && step.after.lease?.lost);
        const { failures, releases, history, attempt, status } = loss?.before ?? lost;
        expect(after).toMatchObject({ failures, releases, history, attempt, status });
      }
    });
  });

  it('changes no position in the queue', () => {
    checkAlways(clientMoves, (steps) => {
      for (const { before, after } of steps) expect(after.position).toBe(before.position);
    });
  });
});

it('ends a job before its time to live is over, however often its attempts ask for another one that does not count', () => {
  const round: Move[] = [
    { name: 'lease' },
    { name: 'outcome', outcome: uncounted },
    { name: 'wait_until_due' },
  ];
  const steps = drive(Array(40).fill(round).flat(), { expiresAt: T0 + 20_000 });
  expect(steps.find(({ removed }) => removed)?.before.status).toBe('FAILED');
  expect(steps.findLast(({ event }) => event.type === 'outcome')?.after).toMatchObject({
    status: 'FAILED',
    attempt: 20,
  });
});

describe('a job whose attempts are all lost', () => {
  const griefs = fc.constantFrom<Move>(
    { name: 'not_received' },
    { name: 'worker_left' },
    { name: 'crashed', alone: true },
    { name: 'crashed', alone: false },
    { name: 'outcome', outcome: { kind: 'released', reason: 'drain' } },
    { name: 'outcome', outcome: { kind: 'released', reason: 'suspect' } },
    { name: 'outcome', outcome: { kind: 'failed', executionMs: 1, error, retry: 'default' } },
    { name: 'outcome', outcome: { kind: 'cancelled', executionMs: 1, stopped: 'signal' } },
    { name: 'wait_until_due' },
  );

  it('ends, however its attempts are lost', () => {
    const most = 3 + settings.maxReleases + 1;
    const rounds = fc.array(griefs, { minLength: most, maxLength: most });
    fc.assert(
      fc.property(rounds, (list) => {
        const round = (grief: Move): Move[] => [
          { name: 'lease' },
          grief,
          { name: 'wait', ms: 80_000 },
        ];
        const steps = drive(list.flatMap(round), { maxAttempts: 3 });
        expect(steps.at(-1)?.after.status).toBe('FAILED');
      }),
      { numRuns: 400 },
    );
  });
});
