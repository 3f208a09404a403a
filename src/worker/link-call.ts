// Makes one call over the link with a time limit, so that a half-open connection cannot block a loop.
import type { Clock } from '../base/clock.ts';
import { LinkError } from '../wire/link/worker-link.ts';

/**
 * Beyond the wait that was asked for, how long a call that carries inputs or outputs may take. The
 * last resort only: a carrier, which sees bytes move or not, gives a dead connection up sooner.
 */
export const TRAVEL_MS = 300_000;

export interface CallLimits {
  clock: Clock;
  /** Given up after this, ms. */
  limitMs: number;
  /** Handed on to the call; what it answers after an abort still counts. */
  signal?: AbortSignal;
}

/**
 * Makes the call. When it has not settled after `limitMs`, its signal is aborted (which makes the
 * carrier drop the connection) and the answer is LinkError `unavailable`.
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

/** Whatever a link threw, as one of its own errors: what is unknown may pass and is repeated. */
export function toLinkError(error: unknown): LinkError {
  if (error instanceof LinkError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new LinkError('unavailable', message, { cause: error });
}
