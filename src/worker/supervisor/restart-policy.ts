// When another process takes the place of a worker process that ended, and when that is given up.
// Pure: keeper.ts does what is decided here.
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';

/** What is remembered of the processes before. */
export interface RestartRecord {
  /** Processes in a row that ended before they took jobs. */
  startFailures: number;
  /** Processes in a row that took jobs and ended soon after. */
  shortLives: number;
  /** Of these, processes in a row that said that no other one could do better. */
  refusals: number;
  /** One of them took jobs. */
  wasEverReady: boolean;
}

export interface ProcessLife {
  wasReady: boolean;
  livedMs: number;
  /** It said that no other process could do better. */
  isFinal: boolean;
  /** It had run jobs, and left by itself so that a fresh one takes its place. */
  isWorn: boolean;
}

export interface RestartPolicy {
  /** Start failures in a row after which it is given up. */
  startAttempts: number;
  /** A process that lived so long was well: the next end counts as the first. */
  wellAfterMs: number;
  pace: BackoffOptions;
  /** Between tries of one that was given up while others go on, ms. */
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
 * The first process that ends after it took jobs has a successor at once, and so has one that is worn.
 * Those that end soon again, or before they took jobs, wait longer each time; only the latter are
 * given up, because a poison job is the queue's to end, and those that say twice that no other could
 * do better: two workers of one id would drive each other out for ever.
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
