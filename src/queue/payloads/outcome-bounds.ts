// Bounds the outcome that a worker reports. The store keeps the outcome in the job's row, reads the whole
// row at every change of the job, and may read thousands of rows at once. Pure.
import { limitText } from '../../base/text/printable.ts';
import type { AttemptError, AttemptUsage, GpuUsage } from '../../wire/job/attempt.ts';
import type { Outcome } from '../../wire/link/worker-link.ts';

/** Longest message, stack or type of an error. Millrace's own workers already cut them at 32,000. */
const MAX_TEXT_CHARS = 33_000;
/** Longest message in the history, which has one for each failed attempt. */
const MAX_HISTORY_CHARS = 1_000;
/** One year: longer than any run or wait of an attempt, and far below the largest safe integer. */
const MAX_SPAN_MS = 365 * 86_400_000;

export interface OutputSize {
  /** Bytes of the report's body. */
  bytes: number;
  maxBytes: number;
}

/**
 * Cuts long texts and times, and fails an attempt whose output is too large. It refuses nothing, because
 * the worker would repeat a refused report.
 */
export function boundOutcome(outcome: Outcome, output: OutputSize): Outcome {
  if (outcome.kind === 'released') return outcome;
  const executionMs = boundSpan(outcome.executionMs);
  if (outcome.kind === 'completed' && outcome.output === 'value' && output.bytes > output.maxBytes)
    return { kind: 'failed', executionMs, error: describeTooLarge(output), retry: 'never' };
  if (outcome.kind === 'completed' || outcome.kind === 'cancelled')
    return { ...outcome, executionMs };
  const error = boundError(outcome.error);
  if (outcome.kind === 'timed_out' || outcome.retryAfterMs === undefined)
    return { ...outcome, executionMs, error };
  return { ...outcome, executionMs, error, retryAfterMs: boundSpan(outcome.retryAfterMs) };
}

/** The largest figure that survives a sum of many. */
const MAX_FIGURE = 2 ** 50;
/** A year of 1,000 GPUs: as ms, the sum of hundreds is a safe integer. */
const MAX_GPU_SECONDS = 1_000 * 365 * 86_400;

/** Limits and rounds the figures. Null if the worker reported none. */
export function boundUsage(usage: AttemptUsage | undefined): AttemptUsage | null {
  const gpu = usage?.gpu;
  return gpu ? { gpu: boundGpuUsage(gpu) } : null;
}

function boundGpuUsage(gpu: GpuUsage): GpuUsage {
  const {
    energyJoules,
    shared,
    seconds,
    utilizationMean,
    vramMeanBytes,
    vramPeakBytes,
    vramScope,
  } = gpu;
  return {
    seconds: boundFigure(Math.min(seconds, MAX_GPU_SECONDS), 3),
    ...(vramPeakBytes !== undefined && { vramPeakBytes: boundFigure(vramPeakBytes) }),
    ...(vramMeanBytes !== undefined && { vramMeanBytes: boundFigure(vramMeanBytes) }),
    ...(vramScope !== undefined && { vramScope }),
    ...(utilizationMean !== undefined && {
      utilizationMean: Math.min(1, boundFigure(utilizationMean, 4)),
    }),
    ...(energyJoules !== undefined && { energyJoules: boundFigure(energyJoules, 3) }),
    shared,
  };
}

function boundFigure(value: number, digits = 0): number {
  return Math.round(Math.min(value, MAX_FIGURE) * 10 ** digits) / 10 ** digits;
}

/** Cuts the message of a failed attempt for the job's history. */
export function boundHistoryMessage(message: string): string {
  return limitText(message, MAX_HISTORY_CHARS);
}

/** The same words as the worker's own check. */
function describeTooLarge({ bytes, maxBytes }: OutputSize): AttemptError {
  const message = `the output is ${bytes} bytes of JSON, the limit is ${maxBytes}`;
  return { code: 'output_too_large', message };
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

export function boundSpan(ms: number): number {
  return Math.min(ms, MAX_SPAN_MS);
}
