// Errors that an author throws to control whether and when a job is retried. They are recognised by a
// brand, not by class, so that errors from another copy of this package in the author's node_modules
// count too.

export const BRAND = Symbol.for('millrace.retry');

/**
 * `never`, or after this many ms. `crashed`: the attempt took a process of the handler down. `context_lost`: that process
 * had lost its context on a device, and is replaced. `released`: the attempt failed because of another one, or nobody knows because of which.
 */
export type RetryAdvice =
  | { kind: 'never' }
  | { kind: 'after'; ms: number }
  | { kind: 'crashed' | 'context_lost' }
  | { kind: 'released'; reason: 'neighbour' | 'suspect' };

/** The job cannot succeed in any attempt: it is FAILED at once. */
export class NonRetryableError extends Error {
  override readonly name: string = 'NonRetryableError';
  readonly [BRAND]: RetryAdvice = { kind: 'never' };
}

/** The next attempt, if any is left, starts after `ms`. */
export class RetryAfterError extends Error {
  override readonly name: string = 'RetryAfterError';
  readonly [BRAND]: RetryAdvice;

  constructor(ms: number, message = `try again in ${ms} ms`, options?: ErrorOptions) {
    super(message, options);
    if (!Number.isFinite(ms) || ms < 0)
      throw new RangeError(`RetryAfterError: ms must be 0 or more, got ${ms}`);
    this[BRAND] = { kind: 'after', ms };
  }
}

/** The advice of a thrown value, if any. */
export function retryAdvice(thrown: unknown): RetryAdvice | undefined {
  if (typeof thrown !== 'object' || thrown === null || !(BRAND in thrown)) return undefined;
  const advice = thrown[BRAND];
  if (typeof advice !== 'object' || advice === null || !('kind' in advice)) return undefined;
  if (advice.kind === 'never') return { kind: 'never' };
  if (advice.kind === 'crashed' || advice.kind === 'context_lost') return { kind: advice.kind };
  if (advice.kind === 'released' && 'reason' in advice) {
    return { kind: 'released', reason: advice.reason === 'suspect' ? 'suspect' : 'neighbour' };
  }
  if (advice.kind === 'after' && 'ms' in advice && typeof advice.ms === 'number') {
    return { kind: 'after', ms: advice.ms };
  }
  return undefined;
}
