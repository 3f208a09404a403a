// The retry policy of an endpoint, a handler or a job: its members, their bounds, and its check. Workers load this file, so it
// loads no zod: retry-schemas.ts has the schemas. queue/lifecycle/retry.ts decides by a policy.
import { ERROR_CODES, type ErrorCode } from './job.ts';

export const BACKOFFS = ['exponential', 'fixed', 'list'] as const;

/** A member that is absent has the value of the next policy: of the job, the handler, the endpoint, the platform. */
export interface RetryPolicy {
  /** How the wait before an attempt follows from the number of failures. Default `exponential`. */
  backoff?: (typeof BACKOFFS)[number];
  /** Wait before the first retry, ms; with `fixed` before each. Default 1,000. */
  delayMs?: number;
  /** `exponential`: each wait is this many times the one before. Default 2. */
  factor?: number;
  /** `exponential`: longest wait, ms. Default 60,000, or `delayMs` if that is longer. */
  maxDelayMs?: number;
  /** `list`: the waits in order, ms; the last one repeats. */
  delaysMs?: number[];
  /** Largest random change of a wait, as a share: 0.2 is ±20 %. Default 0.2. */
  jitter?: number;
  /** Only failures with these codes are retried. Default: all but timeouts and invalid or too large inputs and outputs. */
  retryOn?: ErrorCode[];
  /** Failures with these codes are not retried. */
  noRetryOn?: ErrorCode[];
  /** Failures after which the job is FAILED. Default: `maxAttempts` of the endpoint. */
  maxAttempts?: number;
  /** No retry is due later than this after the start of the first attempt, ms. Default: no limit. */
  maxElapsedMs?: number;
}

const WEEK_MS = 604_800_000;

/** Bounds of the members that are numbers. */
export const RETRY_NUMBERS = {
  delayMs: { min: 0, max: WEEK_MS },
  factor: { min: 1, max: 100, isFraction: true },
  maxDelayMs: { min: 0, max: WEEK_MS },
  jitter: { min: 0, max: 1, isFraction: true },
  maxAttempts: { min: 1, max: 100 },
  maxElapsedMs: { min: 1_000, max: 30 * 86_400_000 },
} as const satisfies Partial<Record<keyof RetryPolicy, Bounds>>;

/** Most waits of a list. */
export const MAX_DELAYS = 50;

/** `backoff: 'list'` and `delaysMs` come together, in one policy. */
export const LIST_RULE = {
  message: 'must come with backoff "list", and backoff "list" with it',
  holds: ({ backoff, delaysMs }: Pick<RetryPolicy, 'backoff' | 'delaysMs'>) =>
    (backoff === 'list') === (delaysMs !== undefined),
};

interface Bounds {
  min: number;
  max: number;
  isFraction?: true;
}

/** What is wrong with the value, if anything is: `delayMs must be a whole number from 0 to 604800000`. */
export function findRetryFault(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return 'must be an object';
  }
  const given = Object.entries(value).filter(([, member]) => member !== undefined);
  for (const [name, member] of given) {
    const check = MEMBERS[name];
    if (!check) return `${name} is unknown; use one of ${Object.keys(MEMBERS).join(', ')}`;
    const fault = check(member);
    if (fault !== undefined) return `${name} ${fault}`;
  }
  return LIST_RULE.holds(value) ? undefined : `delaysMs ${LIST_RULE.message}`;
}

export function isRetryPolicy(value: unknown): value is RetryPolicy {
  return findRetryFault(value) === undefined;
}

type Check = (value: unknown) => string | undefined;

const MEMBERS: Readonly<Record<string, Check>> = {
  backoff: checkWord(BACKOFFS),
  ...Object.fromEntries(
    Object.entries(RETRY_NUMBERS).map(([name, bounds]) => [name, checkNumber(bounds)]),
  ),
  delaysMs: checkList(checkNumber(RETRY_NUMBERS.delayMs), MAX_DELAYS),
  retryOn: checkList(checkWord(ERROR_CODES), ERROR_CODES.length),
  noRetryOn: checkList(checkWord(ERROR_CODES), ERROR_CODES.length),
};

function checkNumber({ isFraction, max, min }: Bounds): Check {
  return (value) => {
    const isNumber = isFraction ? typeof value === 'number' : Number.isInteger(value);
    if (isNumber && Number(value) >= min && Number(value) <= max) return undefined;
    return `must be a ${isFraction ? '' : 'whole '}number from ${min} to ${max}`;
  };
}

function checkWord(words: readonly string[]): Check {
  return (value) =>
    words.some((word) => word === value) ? undefined : `must be one of ${words.join(', ')}`;
}

function checkList(check: Check, max: number): Check {
  return (value) => {
    if (!Array.isArray(value) || value.length === 0 || value.length > max) {
      return `must be an array of 1 to ${max} elements`;
    }
    const faults = value.map((element, index) => {
      const fault = check(element);
      return fault === undefined ? undefined : `[${index}] ${fault}`;
    });
    return faults.find((fault) => fault !== undefined);
  };
}
