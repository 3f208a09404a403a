// Whether and when a failed job runs again: a table of cases, and laws for every policy.
import { describe, expect, it } from 'vitest';
import { next } from '../../../../src/queue/lifecycle/lifecycle.ts';
import {
  completeRetry,
  decideRetry,
  type Failure,
  inheritRetry,
} from '../../../../src/queue/lifecycle/retry.ts';
import { ERROR_CODES } from '../../../../src/wire/job/job.ts';
import {
  findRetryFault,
  isRetryPolicy,
  MAX_DELAYS,
  RETRY_NUMBERS,
  type RetryPolicy,
} from '../../../../src/wire/job/retry-policy.ts';
import { jobRetry } from '../../../../src/wire/job/retry-schemas.ts';
import type { Outcome } from '../../../../src/wire/link/worker-link.ts';
import { fc } from '../../../support/properties.ts';
import { momentAt, NOW, STARTED_AT, states } from '../../../support/store/job-states.ts';

const DAY = 86_400_000;

function decide(policy: RetryPolicy, failure: Partial<Failure> = {}): string {
  const complete = completeRetry({ retry: { own: policy }, maxAttempts: 3 });
  const decision = decideRetry(complete, {
    code: 'handler_error',
    wish: { kind: 'default' },
    failures: 1,
    now: NOW,
    firstStartedAt: NOW - 1_000,
    expiresAt: NOW + DAY,
    isAtOnce: false,
    random: () => 0.5,
    ...failure,
  });
  if (!decision.isRetried) return decision.why;
  return `${decision.waitMs}${decision.counts ? '' : ' uncounted'}`;
}

const after = (ms: number, counts = true) => ({ wish: { kind: 'after', ms, counts } as const });
const never = { wish: { kind: 'never' } as const };

const cases: [string, RetryPolicy, Partial<Failure>, string][] = [
  // Without a policy: the waits that docs/retries.md names.
  ['the first failure', {}, {}, '1000'],
  ['the second failure', {}, { failures: 2 }, '2000'],
  ['the last failure', {}, { failures: 3 }, 'attempts'],
  ['a late failure', { maxAttempts: 100 }, { failures: 50 }, '60000'],
  ['the least jitter', {}, { random: () => 0 }, '800'],
  ['the most jitter', {}, { random: () => 0.999_999 }, '1200'],
  ['a first loss, or other hardware', {}, { isAtOnce: true }, '0'],
  ['an error that no attempt mends', {}, never, 'never'],
  ['an error that asks for a wait', {}, after(30_000), '30000'],
  ['an error that asks for a wait, the last', {}, { ...after(30_000), failures: 3 }, 'attempts'],
  ['a timeout', {}, { code: 'execution_timeout' }, 'code'],
  ['an invalid input', {}, { code: 'input_invalid', ...never }, 'code'],
  // Uncounted: neither attempts nor codes end the job, its time to live does.
  ['an uncounted wait', {}, { ...after(5_000, false), failures: 99 }, '5000 uncounted'],
  ['an uncounted wait of 0', {}, after(0, false), '1000 uncounted'],
  ['an uncounted wait to the end of the ttl', {}, after(DAY, false), 'ttl'],
  ['an uncounted wait just within the ttl', {}, after(DAY - 1, false), `${DAY - 1} uncounted`],
  ['an uncounted wait, limited', { maxElapsedMs: 6_000 }, after(5_001, false), 'elapsed'],
  // Backoffs.
  ['fixed', { backoff: 'fixed', delayMs: 90_000 }, { failures: 2 }, '90000'],
  ['fixed with jitter', { backoff: 'fixed', jitter: 0.5 }, { random: () => 0 }, '500'],
  ['a factor', { factor: 10, delayMs: 10 }, { failures: 2 }, '100'],
  ['a factor of 1', { factor: 1, maxAttempts: 9 }, { failures: 8 }, '1000'],
  ['a cap', { maxDelayMs: 1_500 }, { failures: 2 }, '1500'],
  ['a first wait above the default cap', { delayMs: 300_000 }, { failures: 2 }, '300000'],
  ['a list', { backoff: 'list', delaysMs: [5, 10] }, { failures: 1 }, '5'],
  ['the second of a list', { backoff: 'list', delaysMs: [5, 10] }, { failures: 2 }, '10'],
  ['a list at its end', { backoff: 'list', delaysMs: [5], maxAttempts: 9 }, { failures: 8 }, '5'],
  // Codes.
  ['a listed code', { retryOn: ['handler_error'] }, {}, '1000'],
  ['a code that is not listed', { retryOn: ['worker_crashed'] }, {}, 'code'],
  ['a code that is ruled out', { noRetryOn: ['handler_error'] }, {}, 'code'],
  ['both', { retryOn: ['handler_error'], noRetryOn: ['handler_error'] }, {}, 'code'],
  ['a loss that is not listed', { retryOn: ['handler_error'] }, { code: 'lease_expired' }, 'code'],
  ['a listed timeout', { retryOn: ['execution_timeout'] }, { code: 'execution_timeout' }, '1000'],
  [
    'a listed rule of the platform',
    { retryOn: ['output_invalid'] },
    { code: 'output_invalid', ...never },
    '1000',
  ],
  ['NonRetryableError of a listed code', { retryOn: ['handler_error'] }, never, 'never'],
  ['RetryAfterError of another code', { retryOn: ['worker_crashed'] }, after(7), '7'],
  // Limits.
  ['one attempt', { maxAttempts: 1 }, {}, 'attempts'],
  ['more attempts', { maxAttempts: 5 }, { failures: 4 }, '8000'],
  ['time that is left', { maxElapsedMs: 2_000 }, {}, '1000'],
  ['time that is over', { maxElapsedMs: 1_999 }, {}, 'elapsed'],
];

it.each(cases)('decides on %s', (_, policy, failure, expected) => {
  expect(isRetryPolicy(policy)).toBe(true);
  expect(decide(policy, failure)).toBe(expected);
});

describe('the nearest policy wins, member by member', () => {
  it('in the order job, handler and endpoint, platform', () => {
    const retry = {
      own: { delayMs: 1 },
      inherited: { delayMs: 2, factor: 3, maxAttempts: 7 },
    };
    expect(completeRetry({ retry, maxAttempts: 3 }, { delayMs: 9, jitter: 0 })).toEqual({
      backoff: 'exponential',
      delayMs: 1,
      factor: 3,
      jitter: 0,
      maxAttempts: 7,
    });
  });

  it('and the start of the first attempt is kept only if a policy needs it', () => {
    const plain = { retry: null, maxAttempts: 3 };
    expect(inheritRetry(plain, undefined, NOW)).toBeNull();
    expect(inheritRetry(plain, { factor: 3 }, NOW)).toEqual({ inherited: { factor: 3 } });
    const limited = inheritRetry(plain, { maxElapsedMs: 5_000 }, NOW);
    expect(limited).toEqual({ inherited: { maxElapsedMs: 5_000 }, firstStartedAt: NOW });
    const later = { retry: limited, maxAttempts: 3 };
    expect(inheritRetry(later, { maxElapsedMs: 9_000 }, NOW + 1)).toMatchObject({
      firstStartedAt: NOW,
    });
  });
});

const whole = ({ max, min }: { min: number; max: number }) => fc.integer({ min, max });
const fraction = ({ max, min }: { min: number; max: number }) =>
  fc.double({ min, max, noNaN: true });
const codes = fc.subarray([...ERROR_CODES], { minLength: 1 });
const { delayMs, factor, jitter, maxAttempts, maxDelayMs, maxElapsedMs } = RETRY_NUMBERS;
const shared = {
  delayMs: whole(delayMs),
  factor: fraction(factor),
  maxDelayMs: whole(maxDelayMs),
  jitter: fraction(jitter),
  maxAttempts: whole(maxAttempts),
  maxElapsedMs: whole(maxElapsedMs),
  retryOn: codes,
  noRetryOn: codes,
};
const withoutList = fc.record(
  { ...shared, backoff: fc.constantFrom('exponential' as const, 'fixed' as const) },
  { requiredKeys: [] },
);
const withList = fc.record(
  {
    ...shared,
    backoff: fc.constant('list' as const),
    delaysMs: fc.array(whole(delayMs), { minLength: 1, maxLength: MAX_DELAYS }),
  },
  { requiredKeys: ['backoff', 'delaysMs'] },
);
const policies: fc.Arbitrary<RetryPolicy> = fc.oneof(withoutList, withList);
const wishes = fc.oneof(
  fc.constantFrom({ kind: 'default' as const }, { kind: 'never' as const }),
  fc.record({
    kind: fc.constant('after' as const),
    ms: fc.integer({ min: 0, max: 2 * DAY }),
    counts: fc.boolean(),
  }),
);
const failures: fc.Arbitrary<Failure> = fc.record({
  code: fc.constantFrom(...ERROR_CODES),
  wish: wishes,
  failures: fc.integer({ min: 1, max: 101 }),
  now: fc.constant(NOW),
  firstStartedAt: fc.integer({ min: NOW - DAY, max: NOW }),
  expiresAt: fc.integer({ min: NOW + 1, max: NOW + DAY }),
  isAtOnce: fc.boolean(),
  random: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }).map((drawn) => () => drawn),
});

describe('for every policy and failure', () => {
  it('a retry keeps within the attempts, the time and the ttl', () => {
    fc.assert(
      fc.property(policies, failures, (policy, failure) => {
        const complete = completeRetry({ retry: { own: policy }, maxAttempts: 3 });
        const decision = decideRetry(complete, failure);
        if (!decision.isRetried) return;
        const startsAt = NOW + decision.waitMs;
        expect(decision.waitMs).toBeGreaterThanOrEqual(0);
        if (decision.counts) expect(failure.failures).toBeLessThan(complete.maxAttempts);
        else expect(startsAt).toBeLessThan(failure.expiresAt);
        const elapsed = startsAt - (failure.firstStartedAt ?? NOW);
        expect(elapsed).toBeLessThanOrEqual(policy.maxElapsedMs ?? Number.POSITIVE_INFINITY);
        if (failure.wish.kind === 'default')
          expect(policy.noRetryOn ?? []).not.toContain(failure.code);
      }),
    );
  });

  it('fewer failures, more attempts or more time never end a job earlier', () => {
    fc.assert(
      fc.property(policies, failures, (policy, failure) => {
        const complete = completeRetry({ retry: { own: policy }, maxAttempts: 3 });
        // The same wait.
        const isAtOnce = { ...failure, isAtOnce: true };
        if (!decideRetry(complete, isAtOnce).isRetried) return;
        const fewer = { ...isAtOnce, failures: Math.max(1, failure.failures - 1) };
        expect(decideRetry(complete, fewer).isRetried).toBe(true);
        const more = { ...complete, maxAttempts: complete.maxAttempts + 1 };
        expect(decideRetry(more, isAtOnce).isRetried).toBe(true);
        const { maxElapsedMs: _, ...free } = complete;
        expect(decideRetry(free, isAtOnce).isRetried).toBe(true);
      }),
    );
  });

  it('the API and the worker accept the same policies', () => {
    const anything = fc.oneof(
      policies,
      fc.record({ delayMs: fc.anything(), factor: fc.anything() }),
    );
    fc.assert(
      fc.property(anything, (policy) => {
        expect(isRetryPolicy(policy)).toBe(jobRetry.safeParse(policy).success);
      }),
    );
  });
});

it.each([
  [{ dela: 1 }, /^dela is unknown; use one of backoff, delayMs/],
  [{ delayMs: -1 }, 'delayMs must be a whole number from 0 to 604800000'],
  [{ jitter: 2 }, 'jitter must be a number from 0 to 1'],
  [{ backoff: 'list' }, 'delaysMs must come with backoff "list", and backoff "list" with it'],
  [{ backoff: 'list', delaysMs: [1, -1] }, /^delaysMs \[1\] must be a whole number/],
  [{ retryOn: [] }, /^retryOn must be an array of 1 to \d+ elements$/],
  [{ retryOn: ['oops'] }, /^retryOn \[0\] must be one of handler_error/],
  [[], 'must be an object'],
])('names what is wrong with %j', (policy, fault) => {
  expect(findRetryFault(policy)).toEqual(
    typeof fault === 'string' ? fault : expect.stringMatching(fault),
  );
  expect(jobRetry.safeParse(policy).success).toBe(false);
});

describe('a running job with a policy', () => {
  const end = (own: RetryPolicy, outcome: Outcome, now = NOW) => {
    const job = { ...states.running, retry: { own, firstStartedAt: STARTED_AT } };
    const decision = next(job, { type: 'outcome', seq: 1, outcome }, momentAt(now));
    if ('refused' in decision) throw new Error(decision.refused);
    return decision.job;
  };
  const error = { code: 'handler_error', message: 'busy' } as const;
  const late = { code: 'execution_timeout', message: 'late' } as const;
  const timedOut: Outcome = { kind: 'timed_out', executionMs: 1, error: late, stopped: 'signal' };

  it('is retried after a timeout that its policy lists, and TIMED_OUT at the last one', () => {
    const retryOn = ['execution_timeout' as const];
    expect(end({ retryOn }, timedOut)).toMatchObject({ status: 'IN_QUEUE', failures: 2 });
    expect(end({ retryOn, maxAttempts: 2 }, timedOut)).toMatchObject({ status: 'TIMED_OUT' });
  });

  it('is postponed without a failure, and its ttl runs on', () => {
    const wish = { retry: 'after', retryAfterMs: 60_000, retryCounts: false } as const;
    const job = end({}, { kind: 'failed', executionMs: 1, error, ...wish });
    const { expiresAt, failures, history } = states.running;
    expect(job).toMatchObject({ status: 'IN_QUEUE', delayed: true, failures, history, expiresAt });
    expect(job.availableAt).toBe(NOW + 60_000);
    expect(job.notes).toMatchObject([
      { event: 'started', attempt: 2 },
      { event: 'postponed', attempt: 2, code: 'handler_error', message: 'busy' },
    ]);
    const last = end({}, { kind: 'failed', executionMs: 1, error, ...wish }, expiresAt - 60_000);
    expect(last).toMatchObject({ status: 'FAILED', error });
  });

  it('goes on after the platform ended a silent attempt, if its policy lists timeouts', () => {
    const retry = { own: { retryOn: ['execution_timeout' as const] } };
    const job = { ...states.running, retry, deadlineAt: NOW };
    const decision = next(job, { type: 'clock' }, momentAt(NOW));
    expect(decision).toMatchObject({ stopWorker: true, job: { status: 'IN_QUEUE', lease: null } });
  });

  it('forgets on a retry by a client what it has inherited', () => {
    const own = { maxAttempts: 2 };
    const retry = { own, inherited: { factor: 3 }, firstStartedAt: STARTED_AT };
    const decision = next({ ...states.failed, retry }, { type: 'retry' }, momentAt(NOW));
    expect(decision).toMatchObject({ job: { retry: { own } } });
    const bare = next(
      { ...states.failed, retry: { inherited: {} } },
      { type: 'retry' },
      momentAt(NOW),
    );
    expect(bare).toMatchObject({ job: { retry: null } });
  });
});
