// Schemas of retry policies, with the bounds of retry-policy.ts.
import { z } from 'zod';
import { ERROR_CODES } from './job.ts';
import {
  BACKOFFS,
  LIST_RULE,
  MAX_DELAYS,
  RETRY_NUMBERS,
  type RetryPolicy,
} from './retry-policy.ts';

const { delayMs, factor, jitter, maxAttempts, maxDelayMs, maxElapsedMs } = RETRY_NUMBERS;
const whole = ({ max, min }: { min: number; max: number }) => z.int().min(min).max(max);
const fraction = ({ max, min }: { min: number; max: number }) => z.number().min(min).max(max);
const codes = z.array(z.enum(ERROR_CODES)).min(1).max(ERROR_CODES.length);

const shape = {
  backoff: z
    .enum(BACKOFFS)
    .describe(
      'How the wait before an attempt follows from the number of failures; default `exponential`',
    )
    .exactOptional(),
  delayMs: whole(delayMs)
    .describe('Wait before the first retry, with `fixed` before each, ms; default 1000')
    .exactOptional(),
  factor: fraction(factor)
    .describe('`exponential`: each wait is this many times the one before; default 2')
    .exactOptional(),
  maxDelayMs: whole(maxDelayMs)
    .describe('`exponential`: longest wait, ms; default 60000, or `delayMs` if that is longer')
    .exactOptional(),
  delaysMs: z
    .array(whole(delayMs))
    .min(1)
    .max(MAX_DELAYS)
    .describe('`list`: the waits in order, ms; the last one repeats')
    .exactOptional(),
  jitter: fraction(jitter)
    .describe('Largest random change of a wait, as a share: 0.2, the default, is ±20 %')
    .exactOptional(),
  retryOn: codes
    .describe(
      'Only failures with these error codes are retried. Default: all but `execution_timeout`, `input_invalid`, ' +
        '`output_invalid` and `output_too_large`, which are retried only if they are named',
    )
    .exactOptional(),
  noRetryOn: codes.describe('Failures with these error codes are not retried').exactOptional(),
  maxElapsedMs: whole(maxElapsedMs)
    .describe(
      'No retry is due later than this after the start of the first attempt, ms; default: no limit',
    )
    .exactOptional(),
};

// zod would report a rule of an object at the object itself.
const LIST = { ...LIST_RULE, path: ['delaysMs'] };

/** Of an endpoint, which has `maxAttempts` as a field of its own. */
export const endpointRetry = z.strictObject(shape).refine(LIST.holds, { ...LIST });

export const jobRetry = z
  .strictObject({
    ...shape,
    maxAttempts: whole(maxAttempts)
      .describe('Failures after which the job is FAILED; default: `maxAttempts` of the endpoint')
      .exactOptional(),
  })
  .refine(LIST.holds, { ...LIST }) satisfies z.ZodType<RetryPolicy>;
