import { expect, it } from 'vitest';
import { decidesForAlike } from '../../../src/queue/alike-jobs.ts';
import { next } from '../../../src/queue/lifecycle/lifecycle.ts';
import { withDueAt } from '../../../src/queue/lifecycle/transition.ts';
import type { StoredJob } from '../../../src/store/store.ts';
import { changeAlike } from '../../simulation/memory-tables.ts';
import { fc } from '../../support/properties.ts';
import { makeJob, makeLease, momentAt, NOW, settings, T0 } from './lifecycle/job-states.ts';

const RETAINED_UNTIL = NOW + settings.retentionMs.run;

function cancel(job: StoredJob) {
  const decision = next(job, { type: 'cancel' }, momentAt(NOW));
  if ('refused' in decision) throw new Error(decision.refused);
  return decision;
}

/** Queued jobs of one lane that no worker has had. */
const pairs = fc
  .record({ delayed: fc.boolean(), mode: fc.constantFrom('run' as const, 'runsync' as const) })
  .chain((lane) => {
    const job = fc
      .record({
        position: fc.nat(),
        submittedAt: fc.integer({ min: T0, max: NOW }),
        waitMs: fc.oneof(
          fc.nat(3_000_000),
          fc.constantFrom(...Object.values(settings.retentionMs)),
        ),
        ttlMs: fc.oneof(fc.nat(3_000_000), fc.nat(90_000_000)),
        idempotencyKey: fc.option(fc.string()),
      })
      .map(({ submittedAt, ttlMs, waitMs, ...fields }) => {
        const times = { submittedAt, queuedAt: submittedAt, ttlMs, expiresAt: submittedAt + ttlMs };
        const availableAt = lane.delayed ? NOW + waitMs : submittedAt;
        return makeJob({ ...lane, ...fields, ...times, availableAt });
      });
    return fc.tuple(job, job);
  });

it('one decision is right for all jobs that the store changes with it', () => {
  fc.assert(
    fc.property(pairs, ([job, other]) => {
      const decision = cancel(job);
      if (!decidesForAlike(job, decision) || other.expiresAt < decision.job.expiresAt) return;
      expect(changeAlike(other, job, decision.job)).toEqual(cancel(other).job);
    }),
    { numRuns: 2_000 },
  );
});

it('decides for others if no worker has had the job', () => {
  const job = makeJob();
  expect(decidesForAlike(job, cancel(job))).toBe(true);
  expect(decidesForAlike(job, cancel(job)) && cancel(job).job.expiresAt).toBe(RETAINED_UNTIL);
});

it.each<[string, Partial<StoredJob>]>([
  ['a worker has had', { attempt: 1 }],
  ['a worker may still hold', { lease: makeLease() }],
  ['has a webhook', { webhook: 'https://example.com/' }],
  ['expires before its retention ends', { expiresAt: RETAINED_UNTIL }],
  ['is due when its retention ends', { delayed: true, availableAt: RETAINED_UNTIL }],
  ['runs', { status: 'IN_PROGRESS' }],
])('does not decide for others if the job %s', (_, fields) => {
  const job = withDueAt(makeJob(fields));
  expect(decidesForAlike(job, cancel(job))).toBe(false);
});
