// Measures the memory of the worker's process periodically and acts on it: pauses taking, stops
// attempts, requests a new process. memory-limit.ts decides when.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Attempts } from '../attempts.ts';
import { decideOnMemory, describeExcess, type EarlierMeasurement, isHigh } from './memory-limit.ts';

const POLL_EVERY_MS = 250;

export interface MemoryGuardOptions {
  clock: Clock;
  log: Log;
  attempts: Attempts;
  limitBytes: number;
  /** Resident memory of the process, bytes. */
  readRssBytes: () => number;
  /** Called when taking may resume. */
  onRelief: () => void;
  /** `now`: all attempts are already stopped; do not wait for them. */
  onRecycle: (reason: string, pace: 'now' | 'idle') => void;
}

export class MemoryGuard {
  readonly #options: MemoryGuardOptions;
  #cancelTimer: () => void = () => {};
  #last: EarlierMeasurement | undefined;
  #isStopped = false;
  #hasWarned = false;

  constructor(options: MemoryGuardOptions) {
    this.#options = options;
  }

  /** The process uses so much memory that it should run nothing more. */
  get isHigh(): boolean {
    return this.#last !== undefined && this.#last.action !== 'none';
  }

  start(): void {
    this.#cancelTimer = this.#options.clock.after(POLL_EVERY_MS, () => {
      this.#look();
      if (!this.#isStopped) this.start();
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelTimer();
  }

  #look(): void {
    const { attempts, limitBytes, log, onRecycle, onRelief, readRssBytes } = this.#options;
    const { active, ended, running } = attempts;
    const use = { rssBytes: readRssBytes(), limitBytes, active, ended, running };
    const action = decideOnMemory(use, this.#last);
    const isNews = action !== (this.#last?.action ?? 'none');
    this.#last = { use, action };
    const excess = describeExcess(use);
    switch (action) {
      case 'none':
        if (isNews) onRelief();
        if (isHigh(use)) this.#warnOnce(`memory is low: ${excess}`);
        return;
      case 'hold':
        if (isNews) log.info({ running }, `pausing new jobs: ${excess}`);
        return;
      case 'stop':
        // Repeating the request in every pass has no effect.
        if (isNews) log.warn(`stopping the running job: ${excess}`);
        attempts.stopForMemory(excess);
        return;
      case 'suspect':
        if (isNews) log.warn({ running }, `releasing all jobs to run alone: ${excess}`);
        attempts.stopAsSuspects();
        onRecycle(excess, 'now');
        return;
      case 'recycle':
        onRecycle(excess, 'idle');
    }
  }

  #warnOnce(text: string): void {
    if (!this.#hasWarned) this.#options.log.warn(text);
    this.#hasWarned = true;
  }
}
