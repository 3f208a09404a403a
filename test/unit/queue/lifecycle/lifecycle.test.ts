// The next state of a job for every event in every state, as tables.
import { describe, expect, it } from 'vitest';
import { type JobEvent, next } from '../../../../src/queue/lifecycle/lifecycle.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import type { Outcome, ReleaseReason } from '../../../../src/wire/link/worker-link.ts';
import {
  describeDecision,
  momentAt,
  NOW,
  type StateName,
  states,
} from '../../../support/store/job-states.ts';

type Row = Record<StateName, string>;

/** Nothing happens. */
const unchanged: Row = {
  queued: 'IN_QUEUE none f1 r2',
  delayed: 'IN_QUEUE none f1 r2 delayed',
  lostAsFailure: 'IN_QUEUE lostF f2 r2',
  lostAsRelease: 'IN_QUEUE lostR f1 r3',
  unstarted: 'IN_PROGRESS unstarted f1 r2',
  running: 'IN_PROGRESS started f1 r2',
  completed: 'COMPLETED none f1 r2',
  failed: 'FAILED none f1 r2',
  cancelled: 'CANCELLED none f1 r2',
  timedOut: 'TIMED_OUT none f1 r2',
  failedKept: 'FAILED kept f1 r2',
  cancelledKept: 'CANCELLED kept f1 r2',
  timedOutKept: 'TIMED_OUT kept f1 r2',
};

/** Whoever runs it is told to stop. */
const removed: Row = {
  queued: 'removed',
  delayed: 'removed',
  lostAsFailure: 'removed stop',
  lostAsRelease: 'removed stop',
  unstarted: 'removed stop',
  running: 'removed stop',
  completed: 'removed',
  failed: 'removed',
  cancelled: 'removed',
  timedOut: 'removed',
  failedKept: 'removed stop',
  cancelledKept: 'removed stop',
  timedOutKept: 'removed stop',
};

/** The kept lease of an ended job is given up. */
const freed = {
  failedKept: 'FAILED none f1 r2',
  cancelledKept: 'CANCELLED none f1 r2',
  timedOutKept: 'TIMED_OUT none f1 r2',
};

const refused: Row = {
  queued: 'refused',
  delayed: 'refused',
  lostAsFailure: 'refused',
  lostAsRelease: 'refused',
  unstarted: 'refused',
  running: 'refused',
  completed: 'refused',
  failed: 'refused',
  cancelled: 'refused',
  timedOut: 'refused',
  failedKept: 'refused',
  cancelledKept: 'refused',
  timedOutKept: 'refused',
};

/** The worker was heard of in time, or late and before anybody else got the job. */
const heardOf: Row = {
  ...unchanged,
  lostAsFailure: 'IN_PROGRESS started f1 r2 -1',
  lostAsRelease: 'IN_PROGRESS started f1 r2',
  unstarted: 'IN_PROGRESS started f1 r2',
};

/** The old token is worth nothing any more; a live attempt is not the job's fault. */
const released: Row = {
  ...unchanged,
  ...freed,
  lostAsFailure: 'IN_QUEUE none f2 r2',
  lostAsRelease: 'IN_QUEUE none f1 r3',
  unstarted: 'IN_QUEUE none f1 r3',
  running: 'IN_QUEUE none f1 r3',
};

/** An outcome for each state whose lease it can come from; a late one undoes the loss first. */
function outcomeOf(live: string, retried = 0): Partial<Row> {
  const withRetries = (count: number) =>
    count === 0 ? live : `${live} ${count > 0 ? '+' : ''}${count}`;
  return {
    ...freed,
    lostAsFailure: withRetries(retried - 1),
    lostAsRelease: withRetries(retried),
    unstarted: withRetries(retried),
    running: withRetries(retried),
  };
}

function outcome(outcome: Outcome): JobEvent {
  return { type: 'outcome', seq: 1, outcome };
}

const error = { code: 'handler_error' as const, message: 'no' };
const timeout = { code: 'execution_timeout' as const, message: 'late' };
const lease = { token: 'token-3', workerId: 'w2', incarnation: 1, takeId: 'take-3' };

interface Case {
  event: JobEvent;
  /** Default: NOW, when nothing is due. */
  now?: number;
  /** Changes every state before the event. */
  given?: Partial<StoredJob>;
  /** States that are left out cannot see this event: their token is not good (see judgeReport). */
  expected: Partial<Row>;
}

const cases: Record<string, Case> = {
  lease: {
    event: { type: 'lease', lease },
    expected: {
      ...refused,
      queued: 'IN_PROGRESS unstarted f1 r2',
      lostAsFailure: 'IN_PROGRESS unstarted f2 r2 stop',
      lostAsRelease: 'IN_PROGRESS unstarted f1 r3 stop',
    },
  },
  'lease of a job with chunks': {
    event: { type: 'lease', lease },
    given: { chunkCount: 3, chunkBytes: 60 },
    expected: { queued: 'IN_PROGRESS unstarted f1 r2 dropChunks' },
  },
  renew: { event: { type: 'renew' }, expected: heardOf },
  awaiting_delivery: {
    event: { type: 'awaiting_delivery', incarnation: 2 },
    expected: heardOf,
  },
  not_received: { event: { type: 'not_received' }, expected: released },
  worker_left: { event: { type: 'worker_left' }, expected: released },
  'worker_left after ten releases': {
    event: { type: 'worker_left' },
    given: { releases: 10 },
    expected: {
      unstarted: 'IN_QUEUE none f2 r10 delayed +1',
      running: 'IN_QUEUE none f2 r10 delayed +1',
    },
  },
  'crashed beside others': {
    event: { type: 'crashed', alone: false, detail: 'SIGSEGV' },
    expected: {
      ...released,
      unstarted: 'IN_QUEUE none f1 r2',
      running: 'IN_QUEUE none f1 r2',
    },
  },
  'crashed beside others, though it was to run alone': {
    event: { type: 'crashed', alone: false, detail: 'SIGSEGV' },
    given: { solo: true },
    expected: { running: 'IN_QUEUE none f1 r3' },
  },
  'crashed alone': {
    event: { type: 'crashed', alone: true, detail: 'SIGSEGV' },
    expected: {
      ...released,
      unstarted: 'IN_QUEUE none f2 r2 +1',
      running: 'IN_QUEUE none f2 r2 +1',
    },
  },
  'crashed alone for the last time': {
    event: { type: 'crashed', alone: true, detail: 'SIGSEGV' },
    given: { failures: 2 },
    expected: { running: 'FAILED none f3 r2' },
  },
  chunks: {
    event: { type: 'chunks', seq: 1, count: 2, bytes: 40 },
    expected: { ...pickLeased(heardOf) },
  },
  'chunks beyond the limit': {
    event: { type: 'chunks', seq: 1, count: 1, bytes: 2 ** 31 },
    expected: {
      lostAsFailure: 'FAILED kept f2 r2 -1 stop',
      lostAsRelease: 'FAILED kept f2 r2 stop',
      unstarted: 'FAILED kept f2 r2 stop',
      running: 'FAILED kept f2 r2 stop',
    },
  },
  progress: {
    event: { type: 'progress', seq: 1, value: '0.5' },
    expected: { ...pickLeased(heardOf) },
  },
  log: {
    event: { type: 'log', seq: 1, bytes: 10, dropped: 0 },
    expected: { ...pickLeased(heardOf) },
  },
  'outcome completed': {
    event: outcome({ kind: 'completed', executionMs: 12, output: 'value' }),
    expected: outcomeOf('COMPLETED none f1 r2'),
  },
  'outcome failed': {
    event: outcome({ kind: 'failed', executionMs: 12, error, retry: 'default' }),
    expected: outcomeOf('IN_QUEUE none f2 r2 delayed', 1),
  },
  'outcome failed, the last allowed': {
    event: outcome({ kind: 'failed', executionMs: 12, error, retry: 'default' }),
    given: { failures: 2 },
    expected: { unstarted: 'FAILED none f3 r2', running: 'FAILED none f3 r2' },
  },
  'outcome failed, to be retried after 0 ms': {
    event: outcome({ kind: 'failed', executionMs: 12, error, retry: 'after', retryAfterMs: 0 }),
    expected: outcomeOf('IN_QUEUE none f2 r2', 1),
  },
  'outcome failed, never to be retried': {
    event: outcome({ kind: 'failed', executionMs: 12, error, retry: 'never' }),
    expected: outcomeOf('FAILED none f2 r2'),
  },
  'outcome timed_out': {
    event: outcome({ kind: 'timed_out', executionMs: 12, error: timeout, stopped: 'signal' }),
    expected: outcomeOf('TIMED_OUT none f2 r2'),
  },
  'outcome cancelled': {
    event: outcome({ kind: 'cancelled', executionMs: 12, stopped: 'signal' }),
    expected: outcomeOf('IN_QUEUE none f1 r3'),
  },
  'outcome released': {
    event: outcome({ kind: 'released', reason: 'drain' }),
    expected: outcomeOf('IN_QUEUE none f1 r3'),
  },
  'outcome released as a suspect': {
    event: outcome({ kind: 'released', reason: 'suspect' }),
    expected: outcomeOf('IN_QUEUE none f1 r2'),
  },
  'outcome released as a suspect, though it was to run alone': {
    event: outcome({ kind: 'released', reason: 'suspect' }),
    given: { solo: true },
    expected: { running: 'IN_QUEUE none f1 r3' },
  },
  cancel: {
    event: { type: 'cancel' },
    expected: {
      ...refused,
      queued: 'CANCELLED none f1 r2',
      delayed: 'CANCELLED none f1 r2',
      lostAsFailure: 'CANCELLED none f2 r2 stop',
      lostAsRelease: 'CANCELLED none f1 r3 stop',
      unstarted: 'CANCELLED kept f1 r2 stop',
      running: 'CANCELLED kept f1 r2 stop',
      cancelled: 'CANCELLED none f1 r2',
      cancelledKept: 'CANCELLED kept f1 r2',
    },
  },
  retry: {
    event: { type: 'retry' },
    expected: {
      ...refused,
      failed: 'IN_QUEUE none f0 r0 +1 dropChunks dropOutput',
      timedOut: 'IN_QUEUE none f0 r0 +1 dropChunks dropOutput',
      failedKept: 'IN_QUEUE none f0 r0 +1 stop dropChunks dropOutput',
      timedOutKept: 'IN_QUEUE none f0 r0 +1 stop dropChunks dropOutput',
    },
  },
  set_ttl: { event: { type: 'set_ttl', ttlMs: 10_000 }, expected: unchanged },
  platform_away: { event: { type: 'platform_away', uncountedMs: 0 }, expected: unchanged },
  'clock with nothing due': { event: { type: 'clock' }, expected: unchanged },
  'clock when the delay is over': {
    event: { type: 'clock' },
    now: NOW + 1_000,
    expected: { ...unchanged, delayed: 'IN_QUEUE none f1 r2' },
  },
  'clock when the lease has run out': {
    event: { type: 'clock' },
    now: NOW + 10_000,
    expected: {
      ...unchanged,
      ...freed,
      delayed: 'IN_QUEUE none f1 r2',
      unstarted: 'IN_QUEUE lostR f1 r3',
      running: 'IN_QUEUE lostF f2 r2 +1',
    },
  },
  'clock when the lease of the last attempt has run out': {
    event: { type: 'clock' },
    now: NOW + 10_000,
    given: { failures: 2 },
    expected: { unstarted: 'IN_QUEUE lostR f2 r3', running: 'FAILED none f3 r2' },
  },
  'clock when the lease has run out unstarted too often': {
    event: { type: 'clock' },
    now: NOW + 10_000,
    given: { releases: 10 },
    expected: { unstarted: 'IN_QUEUE lostF f2 r10 delayed +1' },
  },
  'clock when the deadline has passed': {
    event: { type: 'clock' },
    now: NOW + 10_000,
    given: { deadlineAt: NOW + 10_000 },
    expected: { unstarted: 'TIMED_OUT kept f2 r2 stop', running: 'TIMED_OUT kept f2 r2 stop' },
  },
  'clock when the time to live has run out': {
    event: { type: 'clock' },
    given: { expiresAt: NOW },
    expected: removed,
  },
  endpoint_deleted: { event: { type: 'endpoint_deleted' }, expected: removed },
};

/** Reports of an ended job are refused before (see judgeReport), all but the outcome. */
function pickLeased({ lostAsFailure, lostAsRelease, unstarted, running }: Row): Partial<Row> {
  return { lostAsFailure, lostAsRelease, unstarted, running };
}

function isStateName(name: string): name is StateName {
  return name in states;
}

describe.each(Object.entries(cases))('%s', (_, { event, now = NOW, given, expected }) => {
  const rows = Object.entries(expected).filter(([name]) => isStateName(name));
  it.each(rows)('turns a job that is %s into %s', (name, result) => {
    if (!isStateName(name)) throw new Error(name);
    const job = { ...states[name], ...given };
    expect(describeDecision(next(job, event, momentAt(now)))).toBe(result);
  });
});

describe('a stream that a client has received', () => {
  const error = { code: 'handler_error', message: 'no' } as const;
  const outcome = (ended: Outcome): JobEvent => ({ type: 'outcome', seq: 1, outcome: ended });
  const released = (reason: ReleaseReason) => outcome({ kind: 'released', reason });
  const failed = (retry: 'default') => outcome({ kind: 'failed', executionMs: 1, error, retry });
  const lost = { code: 'worker_crashed', message: 'lost' } as const;

  /** Every way in which an attempt ends that another one follows. */
  const endings: [string, JobEvent, number?][] = [
    ['its handler fails', failed('default')],
    [
      'its handler asks for another attempt later',
      outcome({ kind: 'failed', executionMs: 1, error, retry: 'after', retryAfterMs: 5 }),
    ],
    [
      'its worker has lost it',
      outcome({ kind: 'failed', executionMs: 1, error: lost, retry: 'default' }),
    ],
    [
      'it says that it was cancelled',
      outcome({ kind: 'cancelled', executionMs: 1, stopped: 'signal' }),
    ],
    ['its worker drains', released('drain')],
    ['another job took it down', released('neighbour')],
    ['it may have taken others down', released('suspect')],
    ['it was not started', released('not_started')],
    ['its process dies', { type: 'crashed', alone: true, detail: 'x' }],
    ['its process dies with others', { type: 'crashed', alone: false, detail: 'x' }],
    ['its worker leaves', { type: 'worker_left' }],
    ['its lease runs out', { type: 'clock' }, NOW + 60_000],
  ];

  function run(fields: Partial<StoredJob>, [, event, now = NOW]: (typeof endings)[number]) {
    const { attempt } = states.running;
    const streamed = { chunkCount: 2, chunkBytes: 9, cursorAttempt: attempt, cursorNext: 1 };
    const decision = next({ ...states.running, ...streamed, ...fields }, event, momentAt(now));
    if ('refused' in decision) throw new Error(decision.refused);
    return decision.job;
  }

  const attachment = { format: 'runpod', handlerData: null };

  describe.each(endings)('a job of another record format, when %s', (...ending) => {
    it('fails once a client has received a chunk of the attempt', () => {
      const job = run({ attachment }, ending);
      expect(job).toMatchObject({ status: 'FAILED', lease: null, chunkCount: 2 });
      expect(job.error?.attempts.at(-1)).toMatchObject({ attempt: states.running.attempt });
    });

    it('fails if a client is receiving the first chunks of the attempt', () => {
      expect(run({ attachment, cursorNext: 0 }, ending)).toMatchObject({ status: 'FAILED' });
    });

    it('is retried if the client received only chunks of an earlier attempt', () => {
      const cursorAttempt = states.running.attempt - 1;
      expect(run({ attachment, cursorAttempt }, ending)).toMatchObject({ status: 'IN_QUEUE' });
    });

    it("is retried if it came by Millrace's own API, whose streams mark the new attempt", () => {
      expect(run({ attachment: null }, ending)).toMatchObject({ status: 'IN_QUEUE' });
    });
  });

  it('leaves a job that ended this way to a retry of the client', () => {
    const [ending] = endings;
    if (!ending) throw new Error('there is no ending');
    const job = run({ attachment }, ending);
    const decision = next(job, { type: 'retry' }, momentAt(NOW));
    expect(decision).toMatchObject({ job: { status: 'IN_QUEUE', failures: 0 }, dropChunks: true });
  });
});
