import { expect, it } from 'vitest';
import { JobTimes, TIME_BUCKETS_S } from '../../../src/queue/job-times.ts';
import type { StoredJob } from '../../../src/store/store.ts';
import { makeJob } from '../../support/store/stored-jobs.ts';

const NOTHING = { retried: 0, dropChunks: false, dropOutput: false, stopWorker: false };

function note(before: Partial<StoredJob>, after: Partial<StoredJob>, { removed = false } = {}) {
  const times = new JobTimes();
  const from = makeJob({ id: 'a', ...before });
  times.changed(from, { ...NOTHING, removed, job: { ...from, ...after } });
  const [noted] = times.all.values();
  const find = (kind: 'wait' | 'execution') => {
    const at = noted?.[kind].counts.indexOf(1) ?? -1;
    return at < 0 ? undefined : { le: TIME_BUCKETS_S[at] ?? '+Inf', sum: noted?.[kind].sumSeconds };
  };
  return { wait: find('wait'), execution: find('execution') };
}

const QUEUED = {
  status: 'IN_QUEUE',
  queuedAt: 1_000,
  availableAt: 1_000,
  startedAt: null,
} as const;
const RUNNING = { status: 'IN_PROGRESS', queuedAt: 1_000, startedAt: 5_000 } as const;

it.each<[string, Partial<StoredJob>, Partial<StoredJob>, ReturnType<typeof note>]>([
  [
    'a lease counts the wait',
    QUEUED,
    { status: 'IN_PROGRESS', startedAt: 8_000 },
    { wait: { le: 10, sum: 7 }, execution: undefined },
  ],
  [
    'a delay is no wait',
    { ...QUEUED, availableAt: 7_995 },
    { status: 'IN_PROGRESS', startedAt: 8_000 },
    { wait: { le: 0.005, sum: 0.005 }, execution: undefined },
  ],
  [
    'a clock that was set back counts as no wait',
    QUEUED,
    { status: 'IN_PROGRESS', startedAt: 500 },
    { wait: { le: 0.005, sum: 0 }, execution: undefined },
  ],
  [
    'an end counts what the worker measured',
    RUNNING,
    { status: 'FAILED', executionMs: 30_000_000, endedAt: 9_000 },
    { wait: undefined, execution: { le: '+Inf', sum: 30_000 } },
  ],
  [
    'an end without a report counts the time of the lease',
    RUNNING,
    { status: 'TIMED_OUT', executionMs: null, endedAt: 9_000 },
    { wait: undefined, execution: { le: 5, sum: 4 } },
  ],
  ['a retry counts no run', RUNNING, QUEUED, { wait: undefined, execution: undefined }],
  [
    'a job that is cancelled in the queue counts nothing',
    QUEUED,
    { status: 'CANCELLED', endedAt: 9_000 },
    { wait: undefined, execution: undefined },
  ],
  ['a renewal counts nothing', RUNNING, { dueAt: 99 }, { wait: undefined, execution: undefined }],
])('%s', (_case, before, after, expected) => {
  expect(note(before, after)).toEqual(expected);
});

it('counts nothing of a removed job', () => {
  const end = { status: 'COMPLETED', endedAt: 9_000 } as const;
  expect(note(RUNNING, end, { removed: true })).toEqual({ wait: undefined, execution: undefined });
});
