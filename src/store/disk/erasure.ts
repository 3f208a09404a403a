// Erases what was deleted: freed pages are cut off the file and the write-ahead log is emptied.
import { type Clock, letOthersRun } from '../../base/clock.ts';
import type { SqliteDriver } from '../sqlite.ts';

/** 4 KB pages given back in one go; requests are let in between. */
const PAGES = 2_000;

/** With more commits than this a second, freed pages are kept for the next jobs, which overwrite them. */
const IDLE_COMMITS_PER_SECOND = 5;

/** So few are idle in however short a time. */
const IDLE_COMMITS = 20;

export interface ErasureOptions {
  driver: Pick<SqliteDriver, 'commits' | 'eraseFreePages' | 'truncateLog'>;
  clock: Pick<Clock, 'now'>;
  /** How long after a commit its deletions are erased, ms. */
  afterMs: number;
}

export class Erasure {
  readonly #options: ErasureOptions;
  /** Commits whose deletions are erased. */
  #erased = 0;
  #waiting: { since: number; commits: number } | undefined;

  constructor(options: ErasureOptions) {
    this.#options = options;
  }

  /** Does what is due. The first call after a commit only notes it. */
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
    // Without it the file itself does not get shorter.
    if (!(await driver.truncateLog()) || !isIdle || signal.aborted) return;
    this.#erased = commits;
    this.#waiting = undefined;
  }

  #isIdle(commits: number, ms: number): boolean {
    return commits <= Math.max(IDLE_COMMITS, (IDLE_COMMITS_PER_SECOND * ms) / 1_000);
  }
}
