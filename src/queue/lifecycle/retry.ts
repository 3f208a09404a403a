// Decides whether and when a failed job runs again: one pure function of the policy and the failure.
import { backoffMs } from '../../base/backoff.ts';
import type { JobRetry } from '../../store/store.ts';
import type { ErrorCode } from '../../wire/job/job.ts';
import type { RetryPolicy } from '../../wire/job/retry-policy.ts';
import type { Outcome } from '../../wire/link/worker-link.ts';

/** What the error itself asks for: NonRetryableError, RetryAfterError, or neither. */
export type RetryWish =
  | { kind: 'default' | 'never' }
  /** `counts: false`: the attempt does not count as a failure. */
  | { kind: 'after'; ms: number; counts: boolean };

export function readWish({
  retry,
  retryAfterMs,
  retryCounts = true,
}: Extract<Outcome, { kind: 'failed' }>): RetryWish {
  if (retry !== 'after') return { kind: retry };
  return retryAfterMs === undefined
    ? { kind: 'default' }
    : { kind: 'after', ms: retryAfterMs, counts: retryCounts };
}

export interface Failure {
  code: ErrorCode;
  wish: RetryWish;
  /** Failures of the run that count, with this one. */
  failures: number;
  now: number;
  /** When the first attempt of the run started; undefined: unknown. */
  firstStartedAt: number | undefined;
  /** When the time to live of the job ends. */
  expiresAt: number;
  /** A wait gains nothing: the first loss of a worker, or the next attempt needs other hardware. */
  isAtOnce: boolean;
  /** Uniform in [0, 1). */
  random: () => number;
}

export type RetryDecision =
  /** `counts: false`: neither a failure nor an extension of the time to live. */
  | { isRetried: true; waitMs: number; counts: boolean }
  | { isRetried: false; why: 'never' | 'code' | 'attempts' | 'elapsed' | 'ttl' };

/** Shortest wait before an attempt that follows an uncounted one, ms: nothing else bounds their number but the ttl. */
const MIN_UNCOUNTED_MS = 1_000;

/** The platform's own rules end these attempts, and the same attempt would end in the same way. */
const RULED: ReadonlySet<ErrorCode> = new Set([
  'execution_timeout',
  'input_invalid',
  'output_invalid',
  'output_too_large',
]);

export function decideRetry(policy: CompleteRetry, failure: Failure): RetryDecision {
  const { code, expiresAt, failures, firstStartedAt, now, wish } = failure;
  const counts = wish.kind !== 'after' || wish.counts;
  if (wish.kind === 'never' && !RULED.has(code)) return { isRetried: false, why: 'never' };
  if (wish.kind !== 'after' && !isListed(policy, code)) return { isRetried: false, why: 'code' };
  if (counts && failures >= policy.maxAttempts) return { isRetried: false, why: 'attempts' };
  const waitMs = chooseWait(policy, failure);
  const startsAt = now + waitMs;
  if (startsAt - (firstStartedAt ?? now) > (policy.maxElapsedMs ?? Number.POSITIVE_INFINITY)) {
    return { isRetried: false, why: 'elapsed' };
  }
  if (!counts && startsAt >= expiresAt) return { isRetried: false, why: 'ttl' };
  return { isRetried: true, waitMs, counts };
}

function isListed({ noRetryOn = [], retryOn }: RetryPolicy, code: ErrorCode): boolean {
  if (noRetryOn.includes(code)) return false;
  return retryOn ? retryOn.includes(code) : !RULED.has(code);
}

function chooseWait(policy: CompleteRetry, { failures, isAtOnce, random, wish }: Failure): number {
  if (wish.kind === 'after') return wish.counts ? wish.ms : Math.max(wish.ms, MIN_UNCOUNTED_MS);
  if (isAtOnce) return 0;
  const { backoff, delayMs, delaysMs = [], factor, jitter } = policy;
  const maxMs = policy.maxDelayMs ?? Math.max(DEFAULT_MAX_DELAY_MS, delayMs);
  if (backoff === 'exponential') {
    return backoffMs(failures, { baseMs: delayMs, maxMs, factor, jitter, random });
  }
  const listed = delaysMs[Math.min(failures, delaysMs.length) - 1] ?? delayMs;
  const plain = backoff === 'list' ? listed : delayMs;
  return Math.round(plain * (1 + jitter * (2 * random() - 1)));
}

const DEFAULT_MAX_DELAY_MS = 60_000;

/** The policy of a platform whose operator sets none. */
export const DEFAULT_RETRY = {
  backoff: 'exponential',
  delayMs: 1_000,
  factor: 2,
  jitter: 0.2,
} as const satisfies RetryPolicy;

/** A policy whose members, but for those that set a limit of their own, all have a value. */
export type CompleteRetry = RetryPolicy &
  Required<Pick<RetryPolicy, 'backoff' | 'delayMs' | 'factor' | 'jitter' | 'maxAttempts'>>;

interface RetriedJob {
  retry: JobRetry | null;
  /** Of the endpoint, when the job was submitted. */
  maxAttempts: number;
}

/** The policy that holds for the job: member by member that of the job, the handler, the endpoint, the platform. */
export function completeRetry(
  { maxAttempts, retry }: RetriedJob,
  platform: RetryPolicy = DEFAULT_RETRY,
): CompleteRetry {
  return { ...DEFAULT_RETRY, maxAttempts, ...platform, ...retry?.inherited, ...retry?.own };
}

/** What a lease adds: the policies of endpoint and handler as they are now, and the start of the first attempt. */
export function inheritRetry(
  { maxAttempts, retry }: RetriedJob,
  inherited: RetryPolicy | undefined,
  now: number,
): JobRetry | null {
  if (!retry && !inherited) return null;
  const { firstStartedAt = now, own } = retry ?? {};
  const policies = { ...(own && { own }), ...(inherited && { inherited }) };
  const { maxElapsedMs } = completeRetry({ maxAttempts, retry: policies });
  return maxElapsedMs === undefined ? policies : { ...policies, firstStartedAt };
}

/** The handler's policy over that of its endpoint. */
export function joinPolicies(
  endpoint: RetryPolicy | null | undefined,
  handler: RetryPolicy | null | undefined,
): RetryPolicy | undefined {
  return endpoint || handler ? { ...endpoint, ...handler } : undefined;
}
