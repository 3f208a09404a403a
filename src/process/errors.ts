// The errors of calls. A brand tells the worker how each ends the attempt that throws it.
import { BRAND, type RetryAdvice } from '../handler/retry-errors.ts';
import type { ChildError } from './messages.ts';

/** An exception that the called function raised; `name` is its class in the child. */
export class ModelCallError extends Error {
  override readonly name: string;
  readonly [BRAND]: RetryAdvice | undefined;

  /** `context_lost`: the child had lost its context on a device, and is replaced. */
  constructor({ message, retry, stack, type }: ChildError, end?: 'context_lost') {
    super(message);
    this.name = type;
    if (stack !== undefined) this.stack = stack;
    this[BRAND] = end ? { kind: end } : readAdvice(retry);
  }
}

function readAdvice(retry: ChildError['retry']): RetryAdvice | undefined {
  if (retry === 'default') return undefined;
  return retry === 'never' ? { kind: 'never' } : { kind: 'after', ms: retry };
}

/** How a call ended with its child: caused it alone, was one of several, or had no part in it. */
export type Blame = 'culprit' | 'suspect' | 'neighbour';

const ADVICE: Readonly<Record<Blame, RetryAdvice>> = {
  culprit: { kind: 'crashed' },
  suspect: { kind: 'released', reason: 'suspect' },
  neighbour: { kind: 'released', reason: 'neighbour' },
};

/**
 * The child died, hung or broke the protocol. An attempt that throws it fails with
 * `model_process_crashed` if only this call can be the cause; else its job returns to the queue
 * without a failure.
 */
export class ModelProcessError extends Error {
  override readonly name: string = 'ModelProcessError';
  readonly blame: Blame;
  readonly [BRAND]: RetryAdvice;

  constructor(message: string, blame: Blame = 'culprit') {
    super(message);
    this.blame = blame;
    this[BRAND] = ADVICE[blame];
  }
}

/** The call took longer than its `timeoutMs` or the process's `callTimeoutMs`. */
export class ModelTimeoutError extends Error {
  override readonly name: string = 'TimeoutError';
}
