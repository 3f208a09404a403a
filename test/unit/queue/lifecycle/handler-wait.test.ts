// A job whose handler waits: when it runs again, and what its times are then.
import { describe, expect, it } from 'vitest';
import { findAbandoned } from '../../../../src/queue/lifecycle/handler-wait.ts';
import { type JobEvent, next } from '../../../../src/queue/lifecycle/lifecycle.ts';
import type { Transition } from '../../../../src/queue/lifecycle/transition.ts';
import type { JobParent, StoredJob } from '../../../../src/store/store.ts';
import { momentAt, NOW, states } from '../../../support/store/job-states.ts';

const DAY = 86_400_000;
const memo = { entries: 2, bytes: 20 };

function step(job: StoredJob, event: JobEvent, now = NOW): Transition {
  const decision = next(job, event, momentAt(now));
  if ('refused' in decision) throw new Error(`refused: ${decision.refused}`);
  return decision;
}

function awaited(id: string): JobParent {
  return { endpointId: 'e', id, onFailure: 'run', step: { name: `step ${id}`, digest: '' } };
}

function wait(children: readonly JobParent[], until?: number): StoredJob {
  const job = { ...states.running, expiresAt: NOW + 60_000 };
  const seq = job.lastSeq + 1;
  const outcome = { kind: 'waiting', executionMs: 7 } as const;
  return step(job, { type: 'outcome', seq, outcome, wait: { children, until, memo } }).job;
}

function endOf(id: string, status: 'COMPLETED' | 'FAILED'): JobEvent {
  return { type: 'parents_ended', ends: [{ parent: { endpointId: 'e', id }, status }] };
}

describe('a handler that waits for children', () => {
  it('ends its attempt without a failure, a release or a retry', () => {
    const { failures, releases } = states.running;
    const job = wait([awaited('a'), awaited('b')]);
    expect(job).toMatchObject({
      ...{ status: 'IN_QUEUE', delayed: true, lease: null, failures, releases, executionMs: 7 },
      links: { memo, wait: { since: NOW, leftMs: 60_000 } },
    });
    expect(job.notes.at(-1)).toMatchObject({ event: 'waiting', message: 'waits for 2 children' });
  });

  it('is ready when the last child has ended, however it ended, with the time to live that was left', () => {
    const first = step(wait([awaited('a'), awaited('b')]), endOf('a', 'FAILED'), NOW + DAY).job;
    expect(first).toMatchObject({ delayed: true, links: { parents: [{ ended: 'FAILED' }, {}] } });
    expect(first.links?.filling).toBeUndefined();
    const both = step(first, endOf('b', 'COMPLETED'), NOW + 2 * DAY).job;
    expect(both).toMatchObject({ delayed: true, links: { filling: true } });
    const remembered = { ...memo, entries: 4 };
    const ready = step(both, { type: 'filled', memo: remembered }, NOW + 2 * DAY).job;
    expect(ready).toMatchObject({
      ...{ status: 'IN_QUEUE', delayed: false, expiresAt: NOW + 2 * DAY + 60_000 },
      links: { parents: [], memo: remembered },
    });
  });

  it('fails after 30 days, and its open children are abandoned', () => {
    const waiting = wait([awaited('a')]);
    expect(waiting.dueAt).toBe(NOW + 30 * DAY);
    const given = step(waiting, { type: 'clock' }, NOW + 30 * DAY);
    expect(given.job).toMatchObject({
      ...{ status: 'FAILED', links: { parents: [], memo } },
      error: { code: 'wait_failed', message: 'child "step a" did not end within 30 days' },
    });
    expect(findAbandoned(waiting, given)).toEqual([{ endpointId: 'e', id: 'a' }]);
  });

  it('abandons the children that have not ended when it is cancelled, and forgets everything', () => {
    const waiting = step(wait([awaited('a'), awaited('b')]), endOf('a', 'COMPLETED')).job;
    const cancelled = step(waiting, { type: 'cancel' });
    expect(findAbandoned(waiting, cancelled)).toEqual([{ endpointId: 'e', id: 'b' }]);
    expect(cancelled.job.links?.memo).toBeUndefined();
  });

  it('keeps its time to live if a client sets that meanwhile', () => {
    const set = step(wait([awaited('a')]), { type: 'set_ttl', ttlMs: 90_000 }).job;
    const ended = step(set, endOf('a', 'COMPLETED'), NOW + DAY).job;
    const ready = step(ended, { type: 'filled', memo }, NOW + DAY).job;
    expect(ready.expiresAt).toBe(NOW + DAY + 90_000);
  });
});

describe('a handler that sleeps', () => {
  it('is due at its time, with the time to live that was left', () => {
    const job = wait([], NOW + DAY);
    expect(job).toMatchObject({
      ...{ delayed: true, availableAt: NOW + DAY, dueAt: NOW + DAY },
      expiresAt: NOW + DAY + 60_000,
    });
    expect(step(job, { type: 'clock' }, NOW + DAY).job).toMatchObject({ delayed: false });
  });

  it('sleeps on if its children have ended before', () => {
    const ended = step(wait([awaited('a')], NOW + DAY), endOf('a', 'COMPLETED'), NOW + 5).job;
    const job = step(ended, { type: 'filled', memo }, NOW + 5).job;
    expect(job).toMatchObject({ delayed: true, availableAt: NOW + DAY });
  });

  it('has no effect on the attempts and backoffs that a retry policy allows', () => {
    const retry = { own: { maxElapsedMs: 1_000 }, firstStartedAt: NOW - 100 };
    const job = { ...states.running, retry };
    const outcome = { kind: 'waiting', executionMs: 7 } as const;
    const seq = job.lastSeq + 1;
    const until = NOW + DAY;
    const slept = step(job, { type: 'outcome', seq, outcome, wait: { children: [], until, memo } });
    expect(slept.job.retry?.firstStartedAt).toBe(NOW - 100 + DAY);
  });
});

describe('a retry by a client', () => {
  it('forgets the children that have failed, and no other entry', () => {
    const links = { parents: [], children: [], delayMs: 0, memo: { ...memo, failed: [1] } };
    const job = { ...states.failed, linked: true, links };
    expect(step(job, { type: 'retry' }).job.links?.memo).toEqual(memo);
  });
});
