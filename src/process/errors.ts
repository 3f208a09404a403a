// The errors of calls. A brand tells the worker how each ends the attempt that throws it. If the child has ended,
// assignBlame decides which of its calls are to blame: the rule of a crashed thread.
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

interface RunningShare {
  id: number;
  /** Equal for calls of the same job. */
  owner: unknown;
  /** The child had closed its end before the call was written. */
  isUnsent?: boolean;
}

/**
 * A call that the child never got is a neighbour. Of the others: if the culprit is known, or all calls belong to one job,
 * only that job is to blame. If the culprit has ended before, no call is to blame. Otherwise each call is a suspect: its
 * job runs alone next.
 */
export function assignBlame(
  calls: readonly RunningShare[],
  culprit: number | undefined,
): Map<number, Blame> {
  const owners = new Set(calls.flatMap(({ isUnsent, owner }) => (isUnsent ? [] : [owner])));
  const guilty = calls.find(({ id }) => id === culprit)?.owner;
  const judge = ({ isUnsent, owner }: RunningShare): Blame => {
    if (isUnsent) return 'neighbour';
    if (culprit !== undefined) return owner === guilty ? 'culprit' : 'neighbour';
    return owners.size === 1 ? 'culprit' : 'suspect';
  };
  return new Map(calls.map((call) => [call.id, judge(call)]));
}
