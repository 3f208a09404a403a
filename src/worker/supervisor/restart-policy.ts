// Decides when an ended worker process is replaced and when to give up. Pure; keeper.ts carries it
// out.
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';

/** History of the earlier processes. */
export interface RestartRecord {
  /** Processes in a row that ended before they took jobs. */
  startFailures: number;
  /** Processes in a row that took jobs, completed none and ended soon afterwards. */
  shortLives: number;
  /**
   * Processes in a row that reported that another attempt would not help.
   */
  refusals: number;
  /** One of the earlier processes took jobs. */
  wasEverReady: boolean;
}

export interface ProcessLife {
  wasReady: boolean;
  livedMs: number;
  /** The process completed an attempt. */
  hasCompleted: boolean;
  /** The process ended while it ran a solo job, whose retries the queue paces. */
  ranSolo: boolean;
  /** The process reported that another attempt would not help. */
  isFinal: boolean;
  /** The platform refused the key, or had no such endpoint, for the whole of the process's patience, so another process need not wait again. */
  isRefused: boolean;
  /** The process ran jobs and then exited cleanly to be replaced. */
  isRecycled: boolean;
}

export interface RestartPolicy {
  /** Start failures in a row after which the worker is given up. */
  startAttempts: number;
  /** A process that lived this long was healthy: its end counts as the first in a row. */
  healthyAfterMs: number;
  pace: BackoffOptions;
  /** Time between attempts of a worker that was given up while others continue, ms. */
  givenUpMs: number;
}

export const DEFAULT_RESTART_POLICY: RestartPolicy = {
  startAttempts: 5,
  healthyAfterMs: 60_000,
  pace: { baseMs: 500, maxMs: 30_000, jitter: 0.2 },
  givenUpMs: 5 * 60_000,
};

export const NO_RESTARTS: RestartRecord = {
  startFailures: 0,
  shortLives: 0,
  refusals: 0,
  wasEverReady: false,
};

type RestartVerdict = { record: RestartRecord; waitMs: number; isGivenUp: boolean };

/**
 * A process that recycles, or ends after it took jobs, is replaced at once. The waits grow if processes
 * in a row end before they took jobs, or soon and without a completed job. A job that runs alone because
 * it is a suspect makes no wait longer: it must not hold up the others. The worker is given up in two
 * cases. Its processes repeatedly end before they take jobs; later ends may be due to a poison job, which
 * the queue ends. Or two of them in a row report that another attempt would not help: two workers with one
 * ID would otherwise replace each other forever.
 */
export function judgeProcessEnd(
  before: RestartRecord,
  life: ProcessLife,
  policy: RestartPolicy,
): RestartVerdict {
  const { pace, startAttempts, healthyAfterMs, givenUpMs } = policy;
  if (life.isRefused) return { record: before, waitMs: givenUpMs, isGivenUp: true };
  if (life.wasReady) {
    const wasReady = { ...NO_RESTARTS, wasEverReady: true };
    if (life.isRecycled) return { record: wasReady, waitMs: 0, isGivenUp: false };
    const isShort = life.livedMs < healthyAfterMs;
    const inRow = isShort && !life.hasCompleted ? before.shortLives : 0;
    const shortLives = life.ranSolo ? inRow : inRow + 1;
    const refusals = life.isFinal ? (isShort ? before.refusals : 0) + 1 : 0;
    const record = { ...wasReady, shortLives, refusals };
    if (refusals > 1) return { record, waitMs: givenUpMs, isGivenUp: true };
    const waitMs = shortLives <= 1 ? 0 : backoffMs(shortLives - 1, pace);
    return { record, waitMs, isGivenUp: false };
  }
  const startFailures = before.startFailures + 1;
  const cannotStart = life.isFinal && !before.wasEverReady;
  const isGivenUp = cannotStart || startFailures >= startAttempts;
  const waitMs = isGivenUp ? givenUpMs : backoffMs(startFailures, pace);
  return { record: { ...before, startFailures }, waitMs, isGivenUp };
}
