// Attempts whose chunks a client has received: clients of another record format see no other attempt.
import { describe, expect, it } from 'vitest';
import { type JobEvent, next } from '../../../../src/queue/lifecycle/lifecycle.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import type { Outcome, ReleaseReason } from '../../../../src/wire/link/worker-link.ts';
import { momentAt, NOW, states } from '../../../support/store/job-states.ts';

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

it('a client can retry a job that ended this way', () => {
  const [ending] = endings;
  if (!ending) throw new Error('there is no ending');
  const job = run({ attachment }, ending);
  const decision = next(job, { type: 'retry' }, momentAt(NOW));
  expect(decision).toMatchObject({ job: { status: 'IN_QUEUE', failures: 0 }, dropChunks: true });
});
