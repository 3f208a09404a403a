// Decides which of the calls in a child that has ended are to blame: the rule of a crashed thread.
import type { Blame } from './errors.ts';

export interface RunningShare {
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
