// Errors that an author throws to control whether and when a job is retried. They are recognised by a
// brand, not by class, so that errors from another copy of this package in the author's node_modules
// count too.

const BRAND = Symbol.for('millrace.retry');

/** `never`, or after this many ms. */
export type RetryAdvice = { kind: 'never' } | { kind: 'after'; ms: number };

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
  if (advice.kind === 'after' && 'ms' in advice && typeof advice.ms === 'number') {
    return { kind: 'after', ms: advice.ms };
  }
  return undefined;
}
