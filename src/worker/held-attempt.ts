// One attempt whose lease the worker holds: its state, its log fields, and the outcomes it can have
// without running.
import type { Holds } from '../handler/attempt/hold.ts';
import type { ErrorCode } from '../wire/job/job.ts';
import type { Lease } from '../wire/link/worker-link.ts';
import { nameTrace } from '../wire/trace-context.ts';
import type { Execution, ExecutionEnd } from './execution/executor.ts';
import type { AttemptReportSink } from './reports/reporter.ts';

/**
 * `waiting`: must run alone and waits for the process to be empty. `running`: in the executor.
 * `ended`: its outcome is being delivered. `waiting` and `running` attempts are active.
 */
type Phase =
  | { readonly name: 'waiting'; readonly cancelTimer: () => void }
  | { readonly name: 'running'; readonly execution: Execution; readonly cancelTimer: () => void }
  | { readonly name: 'ended' };

export interface Attempt {
  readonly lease: Lease;
  readonly reports: AttemptReportSink;
  /** When it waits for the start of a model process. */
  readonly holds: Holds;
  phase: Phase;
  /** A renewal has named it. */
  named: boolean;
  /** The platform has ended the lease. Renewals confirm to the platform that the worker knows. */
  stopping: boolean;
  /** Nothing remains to be reported: the lease is over, though the handler may still run. */
  settled: boolean;
  /** When its handler was first stopped, Unix ms. */
  stopAskedAt: number | undefined;
  /** Stopped because one of several attempts used too much memory. */
  isSuspect: boolean;
}

export interface RenewedLease {
  jobId: string;
  token: string;
  stopping: boolean;
  delivering?: boolean;
}

export const RELEASED_FOR_DRAIN: ExecutionEnd = {
  outcome: { kind: 'released', reason: 'drain' },
  output: undefined,
};
export const RELEASED_AS_SUSPECT: ExecutionEnd = {
  outcome: { kind: 'released', reason: 'suspect' },
  output: undefined,
};
export const RELEASED_AS_NEIGHBOUR: ExecutionEnd = {
  outcome: { kind: 'released', reason: 'neighbour' },
  output: undefined,
};
export const NOT_STARTED: ExecutionEnd = {
  outcome: { kind: 'released', reason: 'not_started' },
  output: undefined,
};
export const CANCELLED_BEFORE_BEGIN: ExecutionEnd = {
  outcome: { kind: 'cancelled', executionMs: 0, stopped: 'signal' },
  output: undefined,
};

/** The failure is the handler's own, not a consequence of a lost device context. */
const HANDLER_FAULT: ReadonlySet<ErrorCode> = new Set([
  'input_invalid',
  'output_invalid',
  'output_too_large',
]);

/** The end of an attempt in a process whose context on a device another attempt had lost before. */
export function endWithoutContext(end: ExecutionEnd): ExecutionEnd {
  const { outcome } = end;
  return outcome.kind === 'failed' && !HANDLER_FAULT.has(outcome.error.code)
    ? RELEASED_AS_NEIGHBOUR
    : end;
}

/** The end of an attempt. Words of its input do not count as the loss of a context. */
export function readContextLoss(end: ExecutionEnd, { input }: Lease): ExecutionEnd {
  const { contextLoss, outcome } = end;
  if (contextLoss === undefined || !Buffer.from(input).includes(contextLoss)) return end;
  const rest = { ...end, contextLoss: undefined };
  if (outcome.kind !== 'failed') return rest;
  return { ...rest, outcome: { ...outcome, error: { ...outcome.error, code: 'handler_error' } } };
}

/** Fields for log lines. */
export function describeAttempt({ lease: { jobId: job, attempt, traceparent } }: Attempt) {
  return { job, attempt, ...nameTrace(traceparent) };
}

/** Names the lease for a renewal and marks it as named. */
export function nameLease(attempt: Attempt): RenewedLease {
  attempt.named = true;
  const { jobId, token } = attempt.lease;
  const named = { jobId, token, stopping: attempt.stopping };
  return attempt.phase.name === 'ended' ? { ...named, delivering: true } : named;
}
