// Assigns attempts to rounds of report calls: all attempts share one round, or each attempt has its own
// if the platform requires that.

import { RetryPace } from '../link/retry-pace.ts';
import type { AttemptReports } from './attempt-reports.ts';

/** Calls that follow each other; only one is open at a time. */
export interface Round {
  /** The attempt whose reports it carries; undefined: all attempts. */
  readonly attempt: AttemptReports | undefined;
  readonly pace: RetryPace;
  readonly gapPace: RetryPace;
}

export class ReportRounds {
  readonly #common = createRound(undefined);
  readonly #ofAttempts = new Map<AttemptReports, Round>();

  find(attempt: AttemptReports, reportsBy: 'worker' | 'attempt' = 'worker'): Round {
    if (reportsBy === 'worker') return this.#common;
    const round = this.#ofAttempts.get(attempt) ?? createRound(attempt);
    this.#ofAttempts.set(attempt, round);
    return round;
  }

  remove(attempt: AttemptReports): void {
    this.#ofAttempts.delete(attempt);
  }
}

function createRound(attempt: AttemptReports | undefined): Round {
  const options = { baseMs: 50, maxMs: 5_000, jitter: 0.2 };
  return { attempt, pace: new RetryPace(options), gapPace: new RetryPace(options) };
}
