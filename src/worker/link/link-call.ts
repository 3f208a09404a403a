// Makes one call over the link with a time limit, so that a half-open connection cannot block a loop.
import type { Clock } from '../../base/clock.ts';
import { LinkError } from '../../wire/link/worker-link.ts';

/**
 * Time limit of a call that transfers inputs or outputs, in addition to its requested wait. This is
 * a last resort: the carrier monitors progress and gives up a dead connection sooner.
 */
export const TRANSFER_LIMIT_MS = 300_000;

export interface CallLimits {
  clock: Clock;
  /** The call is given up after this time, ms. */
  limitMs: number;
  /** Passed to the call. If the call answers after the abort, the answer still counts. */
  signal?: AbortSignal;
}

/**
 * Makes the call. If it has not settled after `limitMs`, aborts its signal, so that the carrier
 * drops the connection, and rejects with LinkError `unavailable`.
 */
export function callWithin<T>(
  { clock, limitMs, signal }: CallLimits,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const abort = () => controller.abort();
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort, { once: true });
  return new Promise<T>((resolve, reject) => {
    const cancel = clock.after(limitMs, () => {
      reject(new LinkError('unavailable', `no response within ${limitMs} ms`));
      abort();
    });
    call(controller.signal)
      .then(resolve, reject)
      .finally(() => {
        cancel();
        signal?.removeEventListener('abort', abort);
      });
  });
}

/**
 * Converts any error of a link to a LinkError: unknown errors count as temporary and are retried.
 */
export function toLinkError(error: unknown): LinkError {
  if (error instanceof LinkError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new LinkError('unavailable', message, { cause: error });
}
