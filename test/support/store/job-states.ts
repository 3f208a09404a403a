// One job in each state and the name of each state, for tests of the lifecycle.

import { type Decision, type Moment, withDueAt } from '../../../src/queue/lifecycle/transition.ts';
import { completeSettings, type QueueSettings } from '../../../src/queue/settings.ts';
import type { StoredJob, StoredLease } from '../../../src/store/store.ts';
import { isTerminal, type TerminalStatus } from '../../../src/wire/job/job.ts';
import { makeJob as makeStored } from './stored-jobs.ts';

export const T0 = Date.UTC(2026, 0, 1);
/** When the attempt under test was leased. */
export const STARTED_AT = T0 + 60_000;
/** When the events of the tests happen, unless they say otherwise. */
export const NOW = STARTED_AT + 5_000;

export const settings = completeSettings();

export function momentAt(now: number, changed: Partial<QueueSettings> = {}): Moment {
  return { now, random: () => 0.5, settings: { ...settings, ...changed } };
}

export function makeJob(fields: Partial<StoredJob> = {}): StoredJob {
  const times = { position: T0 * 1_000, submittedAt: T0, queuedAt: T0, availableAt: T0 };
  const expiresAt = T0 + 86_400_000;
  return withDueAt(makeStored({ endpointId: 'e', id: 'job', ...times, expiresAt, ...fields }));
}

export function makeLease(fields: Partial<StoredLease> = {}): StoredLease {
  return {
    token: 'token-2',
    workerId: 'w1',
    incarnation: 1,
    takeId: 'take-2',
    until: STARTED_AT + settings.leaseMs,
    started: true,
    lost: null,
    ...fields,
  };
}

/** Second attempt of a job whose first one threw, and that was released twice. */
const tried: Partial<StoredJob> = {
  attempt: 2,
  failures: 1,
  releases: 2,
  startedAt: STARTED_AT,
  workerId: 'w1',
  history: [
    {
      attempt: 1,
      code: 'handler_error',
      message: 'one',
      workerId: 'w0',
      startedAt: T0,
      endedAt: T0 + 1_000,
    },
  ],
};

const running: Partial<StoredJob> = {
  ...tried,
  status: 'IN_PROGRESS',
  deadlineAt: STARTED_AT + 610_000,
};

function ended(status: TerminalStatus, lease: StoredLease | null): StoredJob {
  const error =
    status === 'FAILED' || status === 'TIMED_OUT'
      ? { code: 'handler_error' as const, message: 'two', attempts: [] }
      : null;
  const endedAt = STARTED_AT + 1_000;
  const expiresAt = endedAt + settings.retentionMs.run;
  return makeJob({ ...tried, status, endedAt, expiresAt, error, lease });
}

export const states = {
  queued: makeJob(tried),
  delayed: makeJob({ ...tried, delayed: true, availableAt: NOW + 1_000 }),
  lostAsFailure: makeJob({
    ...tried,
    failures: 2,
    history: [
      ...(tried.history ?? []),
      {
        attempt: 2,
        code: 'lease_expired',
        message: 'two',
        workerId: 'w1',
        startedAt: STARTED_AT,
        endedAt: NOW - 1_000,
      },
    ],
    lease: makeLease({ until: NOW - 1_000, lost: 'failure' }),
  }),
  lostAsRelease: makeJob({
    ...tried,
    releases: 3,
    lease: makeLease({ until: NOW - 1_000, started: false, lost: 'release' }),
  }),
  unstarted: makeJob({ ...running, lease: makeLease({ started: false }) }),
  running: makeJob({ ...running, lease: makeLease() }),
  completed: ended('COMPLETED', null),
  failed: ended('FAILED', null),
  cancelled: ended('CANCELLED', null),
  timedOut: ended('TIMED_OUT', null),
  failedKept: ended('FAILED', makeLease()),
  cancelledKept: ended('CANCELLED', makeLease()),
  timedOutKept: ended('TIMED_OUT', makeLease()),
} satisfies Record<string, StoredJob>;

export type StateName = keyof typeof states;

function describeLease(job: StoredJob): string {
  if (!job.lease) return 'none';
  if (isTerminal(job.status)) return 'kept';
  if (job.lease.lost) return job.lease.lost === 'failure' ? 'lostF' : 'lostR';
  return job.lease.started ? 'started' : 'unstarted';
}

/** `<status> <lease> f<failures> r<releases>`, and after it what else has to happen. */
export function describeDecision(decision: Decision): string {
  if ('refused' in decision) return 'refused';
  const { job, removed, retried, stopWorker, dropChunks, dropOutput } = decision;
  const words = removed
    ? ['removed']
    : [job.status, describeLease(job), `f${job.failures}`, `r${job.releases}`];
  if (job.delayed && !removed) words.push('delayed');
  if (retried !== 0) words.push(retried > 0 ? `+${retried}` : `${retried}`);
  if (stopWorker) words.push('stop');
  if (dropChunks) words.push('dropChunks');
  if (dropOutput) words.push('dropOutput');
  return words.join(' ');
}
