// Compares the readings of a job, and finds what its handler has written.
import { isDeepStrictEqual } from 'node:util';
import { isTerminal } from '../../src/wire/job/job.ts';
import {
  isDone,
  type JobFacts,
  lastEffect,
  madeChunk,
  madeOutput,
  mayBeDone,
  type Reading,
  streamOf,
} from './facts.ts';
import type { Call, HistoryEvent } from './history.ts';

/** Leaves out the answers of cancels and retries, which have rules of their own. */
export function findReads({ readings }: JobFacts): Reading[] {
  return readings.filter(({ by }) => by !== 'cancel' && by !== 'retry');
}

/** Retries that may have taken effect. */
export function findRetries({ calls }: JobFacts): Call[] {
  return calls.filter((call) => call.request.do === 'retry' && mayBeDone(call));
}

/** The second call was sent after the answer to the first. A webhook may be late, so it proves no order. */
export function areInOrder(before: Reading, after: Reading): boolean {
  return before.by !== 'webhook' && before.to < after.from;
}

/** Each read with the last terminal one before it, unless a retry may have run the job again between them. */
export function* pairsInOrder(job: JobFacts): Generator<[before: Reading, after: Reading]> {
  const reads = findReads(job);
  const retries = findRetries(job);
  for (const after of reads) {
    const before = reads.findLast((one) => isTerminal(one.status) && areInOrder(one, after));
    if (!before) continue;
    const isRetried =
      (before.status === 'FAILED' || before.status === 'TIMED_OUT') &&
      retries.some((call) => call.sentAt < after.to && lastEffect(call) > before.from);
    if (!isRetried) yield [before, after];
  }
}

/** Compares what both readings have. */
export function isSame(one: Reading, other: Reading): boolean {
  if (!isSameEnd(one, other)) return false;
  return !one.result || !other.result || isDeepStrictEqual(one.result, other.result);
}

/** Whether both show the end of the same attempt: after a retry, a job ends again. */
export function isSameEnd(one: Reading, other: Reading): boolean {
  const isSameAttempt = (one.attempt ?? other.attempt) === (other.attempt ?? one.attempt);
  return one.status === other.status && isSameAttempt;
}

export interface Made {
  tag: string;
  attempt: number;
  run: string;
  startedAt: number;
  endedAt?: number;
  event: HistoryEvent;
}

/** All chunks and outputs of the job that clients have received. */
export function findMade(job: JobFacts): Made[] {
  const chunks = job.calls
    .filter((call) => call.request.do === 'stream' && isDone(call))
    .flatMap((event) =>
      streamOf(event).pieces.flatMap((piece): Made[] => {
        const chunk = 'at' in piece ? madeChunk.safeParse(piece.output).data : undefined;
        return chunk ? [{ ...chunk, event }] : [];
      }),
    );
  const outputs = job.readings.flatMap(({ event, result }): Made[] => {
    const output = madeOutput.safeParse(result?.output).data;
    return output ? [{ ...output, event }] : [];
  });
  return [...chunks, ...outputs];
}
