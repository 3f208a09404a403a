// Bounds what a worker reports of an attempt's end. It is kept in the job's row, which is read whole with
// every change of the job, and some thousands of rows may be read at once. Pure.
import { limitText } from '../base/printable.ts';
import type { AttemptError } from '../wire/job.ts';
import type { Outcome } from '../wire/link/worker-link.ts';

/** Of one text of an error. Workers of this package cut at 32,000 and say how much is missing. */
const MAX_TEXT_CHARS = 33_000;
/** Of the message in the history, of which a job has one for each failed attempt. */
const MAX_HISTORY_CHARS = 1_000;
/** A year: beyond what any attempt runs or waits, and far from the largest whole number. */
const MAX_SPAN_MS = 365 * 86_400_000;

/** Longer texts are cut, longer spans shortened: refused, the worker would only say it again. */
export function boundOutcome(outcome: Outcome): Outcome {
  if (outcome.kind === 'released') return outcome;
  const executionMs = boundSpan(outcome.executionMs);
  if (outcome.kind === 'completed' || outcome.kind === 'cancelled')
    return { ...outcome, executionMs };
  const error = boundError(outcome.error);
  if (outcome.kind === 'timed_out' || outcome.retryAfterMs === undefined)
    return { ...outcome, executionMs, error };
  return { ...outcome, executionMs, error, retryAfterMs: boundSpan(outcome.retryAfterMs) };
}

/** The message of a failed attempt as its job's history keeps it. */
export function boundHistoryMessage(message: string): string {
  return limitText(message, MAX_HISTORY_CHARS);
}

function boundError(error: AttemptError): AttemptError {
  const { message, stack, stuck, type } = error;
  return {
    ...error,
    message: limitText(message, MAX_TEXT_CHARS),
    ...(type !== undefined && { type: limitText(type, MAX_TEXT_CHARS) }),
    ...(stack !== undefined && { stack: limitText(stack, MAX_TEXT_CHARS) }),
    ...(stuck?.stack !== undefined && {
      stuck: { ...stuck, stack: limitText(stuck.stack, MAX_TEXT_CHARS) },
    }),
  };
}

function boundSpan(ms: number): number {
  return Math.min(ms, MAX_SPAN_MS);
}
