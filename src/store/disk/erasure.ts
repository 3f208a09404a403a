// Erases deleted data: cuts freed pages off the file and empties the write-ahead log.
import { type Clock, letOthersRun } from '../../base/clock.ts';
import type { SqliteDriver } from '../sqlite/sqlite.ts';

/** 4 KB pages erased in one step; requests run between two steps. */
const PAGES = 500;

/** With more commits per second than this, freed pages are kept: the next jobs overwrite them. */
const IDLE_COMMITS_PER_SECOND = 5;

/** This few commits count as idle, whatever the period. */
const IDLE_COMMITS = 20;

export interface ErasureOptions {
  driver: Pick<SqliteDriver, 'commits' | 'eraseFreePages' | 'truncateLog'>;
  clock: Pick<Clock, 'now'>;
  /** Time between a commit and the erasure of its deletions, ms. */
  afterMs: number;
}

export class Erasure {
  readonly #options: ErasureOptions;
  /** Number of commits whose deletions are erased. */
  #erased = 0;
  #waiting: { since: number; commits: number } | undefined;

  constructor(options: ErasureOptions) {
    this.#options = options;
  }

  /** Erases due deletions. The first call after a commit only notes the commit. */
  async tick(signal: AbortSignal): Promise<void> {
    const { afterMs, clock, driver } = this.#options;
    const { commits } = driver;
    if (commits === this.#erased) return;
    const now = clock.now();
    this.#waiting ??= { since: now, commits: this.#erased };
    const waitedMs = now - this.#waiting.since;
    if (waitedMs >= 0 && waitedMs < afterMs) return;
    const isIdle = this.#isIdle(commits - this.#waiting.commits, waitedMs);
    this.#waiting = { since: now, commits };
    if (isIdle) {
      while (!signal.aborted && (await driver.eraseFreePages(PAGES))) await letOthersRun();
    }
    // Only truncating the log shortens the file itself.
    if (!(await driver.truncateLog()) || !isIdle || signal.aborted) return;
    this.#erased = commits;
    this.#waiting = undefined;
  }

  #isIdle(commits: number, ms: number): boolean {
    return commits <= Math.max(IDLE_COMMITS, (IDLE_COMMITS_PER_SECOND * ms) / 1_000);
  }
}
