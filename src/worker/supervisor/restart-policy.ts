// Decides when an ended worker process is replaced and when to give up. Pure; keeper.ts carries it
// out.
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';

/** History of the earlier processes. */
export interface RestartRecord {
  /** Processes in a row that ended before they took jobs. */
  startFailures: number;
  /** Processes in a row that took jobs and ended soon afterwards. */
  shortLives: number;
  /**
   * Processes in a row, among the start failures, that said that another attempt would not help.
   */
  refusals: number;
  /** One of them took jobs. */
  wasEverReady: boolean;
}

export interface ProcessLife {
  wasReady: boolean;
  livedMs: number;
  /** It said that another attempt would not help. */
  isFinal: boolean;
  /** It had run jobs and exited by itself to be replaced. */
  isWorn: boolean;
}

export interface RestartPolicy {
  /** Start failures in a row after which the worker is given up. */
  startAttempts: number;
  /** A process that lived this long was healthy: the next end counts as the first. */
  wellAfterMs: number;
  pace: BackoffOptions;
  /** Time between attempts of a worker that was given up while others continue, ms. */
  givenUpMs: number;
}

export const DEFAULT_RESTART_POLICY: RestartPolicy = {
  startAttempts: 5,
  wellAfterMs: 60_000,
  pace: { baseMs: 500, maxMs: 30_000, jitter: 0.2 },
  givenUpMs: 5 * 60_000,
};

export const NO_RESTARTS: RestartRecord = {
  startFailures: 0,
  shortLives: 0,
  refusals: 0,
  wasEverReady: false,
};

export type RestartVerdict = { record: RestartRecord; waitMs: number; isGivenUp: boolean };

/**
 * A process that ends after it took jobs is replaced at once, and so is one that recycles.
 * Processes that end again soon, or before they took jobs, are replaced after growing waits. Only
 * the latter are given up, because ending a poison job is the queue's task, and so are those that
 * say twice that another attempt would not help: two workers with one ID would otherwise replace
 * each other for ever.
 */
export function judgeProcessEnd(
  before: RestartRecord,
  life: ProcessLife,
  policy: RestartPolicy,
): RestartVerdict {
  const { pace, startAttempts, wellAfterMs, givenUpMs } = policy;
  if (life.wasReady) {
    const wasReady = { ...NO_RESTARTS, wasEverReady: true };
    if (life.isWorn) return { record: wasReady, waitMs: 0, isGivenUp: false };
    const isShort = life.livedMs < wellAfterMs;
    const shortLives = isShort ? before.shortLives + 1 : 1;
    const refusals = life.isFinal ? (isShort ? before.refusals : 0) + 1 : 0;
    const record = { ...wasReady, shortLives, refusals };
    if (refusals > 1) return { record, waitMs: givenUpMs, isGivenUp: true };
    const waitMs = shortLives === 1 ? 0 : backoffMs(shortLives - 1, pace);
    return { record, waitMs, isGivenUp: false };
  }
  const startFailures = before.startFailures + 1;
  const isHopeless = life.isFinal && !before.wasEverReady;
  const isGivenUp = isHopeless || startFailures >= startAttempts;
  const waitMs = isGivenUp ? givenUpMs : backoffMs(startFailures, pace);
  return { record: { ...before, startFailures }, waitMs, isGivenUp };
}
