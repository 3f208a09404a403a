// Why an attempt is stopped, what its signal is told, and how a stopped attempt ends.
import type { Outcome, StopLevel } from '../wire/worker-link.ts';

/**
 * `cancelled` by the client, `lost` its lease, `timeout` ran too long, `shutdown` of the worker:
 * each goes signal, `generator.return()`, grace, thread.
 */
export type StopReason = 'cancelled' | 'lost' | 'timeout' | 'shutdown';

const MESSAGES: Readonly<Record<StopReason, string>> = {
  cancelled: 'the job was cancelled',
  lost: 'the lease of the job was lost, another worker may have it',
  timeout: 'the job ran longer than its timeout',
  shutdown: 'the worker is shutting down',
};

/** The reason of `ctx.signal`: a TimeoutError or an AbortError, whose `reason` says more. */
export class StopError extends Error {
  override readonly name: 'TimeoutError' | 'AbortError';
  readonly reason: StopReason;

  constructor(reason: StopReason) {
    super(MESSAGES[reason]);
    this.name = reason === 'timeout' ? 'TimeoutError' : 'AbortError';
    this.reason = reason;
  }
}

export interface StoppedAttempt {
  reason: StopReason;
  /** How far the stop had to go. */
  level: StopLevel;
  executionMs: number;
  timeoutMs: number;
}

export function createStoppedOutcome(stopped: StoppedAttempt): Outcome {
  const { reason, level, timeoutMs } = stopped;
  const executionMs = Math.round(stopped.executionMs);
  switch (reason) {
    case 'timeout': {
      const message = `the job ran longer than its timeout of ${timeoutMs} ms`;
      const error = { code: 'execution_timeout', message } as const;
      return { kind: 'timed_out', executionMs, error, stopped: level };
    }
    case 'cancelled':
    case 'lost':
      return { kind: 'cancelled', executionMs, stopped: level };
    case 'shutdown':
      return { kind: 'released', reason: 'drain' };
  }
}
