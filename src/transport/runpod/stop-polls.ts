// Polls for jobs to stop, one long poll after the other, while the link is open. The link stops
// them.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { readStops } from './bodies.ts';
import {
  chooseRetryMs,
  isSuccess,
  isTransientAnswer,
  type RunPodAnswer,
  type RunPodCaller,
  toPassingError,
} from './caller.ts';

/** Longer than the platform holds a poll. */
const POLL_LIMIT_MS = 95_000;
/** Pause after an early empty answer, ms. */
const PAUSE_MS = 1_000;
/** Pause if the platform has no such route, ms; it may get one. */
const ABSENT_MS = 60_000;

export interface StopPollsOptions {
  url: string;
  caller: RunPodCaller;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  onStop: (jobIds: readonly string[]) => void;
}

export class StopPolls {
  readonly #options: StopPollsOptions;
  #failures = 0;
  #isAbsent = false;
  /** Why stops do not arrive; undefined if they do. */
  trouble: Error | undefined;

  constructor(options: StopPollsOptions) {
    this.#options = options;
  }

  /** Ends with the signal; never rejects. */
  async run(): Promise<void> {
    const { clock, signal } = this.#options;
    while (!signal.aborted) {
      const waitMs = await this.#poll();
      if (waitMs > 0) await sleep(clock, waitMs, signal);
    }
  }

  /** @returns ms to wait before the next poll */
  async #poll(): Promise<number> {
    const { caller, clock, log, signal, url } = this.#options;
    const askedAt = clock.now();
    try {
      const answer = await caller.get(url, { limitMs: POLL_LIMIT_MS, signal });
      // 400 is the answer to a machine that sleeps between jobs, as for a take.
      const isAccepted = isSuccess(answer) || answer.status === 400;
      if (!isAccepted && (answer.status === 501 || !isTransientAnswer(answer)))
        return this.#noteAbsence();
      if (!isAccepted) throw toPassingError('job-stop', answer);
      this.#failures = 0;
      this.#isAbsent = false;
      this.trouble = undefined;
      return this.#act(answer) || clock.now() - askedAt >= PAUSE_MS ? 0 : PAUSE_MS;
    } catch (error) {
      if (signal.aborted) return 0;
      // A poll that reached its time limit is no fault.
      if (clock.now() - askedAt >= POLL_LIMIT_MS) return 0;
      this.#failures += 1;
      this.trouble = error instanceof Error ? error : new Error(String(error));
      log[this.#failures === 1 ? 'warn' : 'debug'](
        { err: error },
        'polling for stops failed, retrying',
      );
      return chooseRetryMs(error, this.#failures);
    }
  }

  /** Returns false if the answer names no job. */
  #act({ body }: RunPodAnswer): boolean {
    const jobIds = readStops(body);
    if (jobIds.length > 0) this.#options.onStop(jobIds);
    return jobIds.length > 0;
  }

  #noteAbsence(): number {
    if (!this.#isAbsent) {
      this.#options.log.warn('platform has no channel for stops, jobs cannot be cancelled');
    }
    this.#isAbsent = true;
    this.trouble = undefined;
    return ABSENT_MS;
  }
}
