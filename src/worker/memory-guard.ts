// Measures the memory of the worker's process periodically, decides what to do about it, and does so: pauses taking,
// stops attempts, requests a new process.
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Attempts } from './attempts.ts';

const POLL_EVERY_MS = 250;

/** From this share of the limit on, the process is replaced: a new one uses less. */
const HIGH_SHARE = 0.8;

const MB = 1_048_576;

interface MemoryGuardOptions {
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

interface MemoryUse {
  /** Resident memory of the process. */
  rssBytes: number;
  limitBytes: number;
  /** Attempts whose handler runs. */
  running: number;
  /** Attempts that have or will have a slot. */
  active: number;
  /** Attempts that have ended in this process. */
  ended: number;
}

/**
 * `hold`: take nothing until memory is freed or nothing runs. `recycle`: replace the process.
 * `stop`: the only running attempt has used too much. `suspect`: one of several running attempts
 * has, or one that has ended.
 */
type MemoryAction = 'none' | 'hold' | 'recycle' | 'stop' | 'suspect';

/** The previous measurement and its action. */
interface EarlierMeasurement {
  use: MemoryUse;
  action: MemoryAction;
}

export function decideOnMemory(use: MemoryUse, earlier?: EarlierMeasurement): MemoryAction {
  const { rssBytes, limitBytes, running, active, ended } = use;
  if (!isHigh(use)) return 'none';
  // If the process has run nothing yet, a new process would use as much memory.
  if (active === 0) return ended > 0 ? 'recycle' : 'none';
  if (rssBytes <= limitBytes || running === 0) return 'hold';
  return running === 1 && isToBlame(use, earlier) ? 'stop' : 'suspect';
}

/**
 * An attempt is not to blame for memory that was in use before it, or that another attempt used.
 */
function isToBlame({ ended }: MemoryUse, earlier: EarlierMeasurement | undefined): boolean {
  if (!earlier) return true;
  const { use, action } = earlier;
  if (use.ended !== ended || use.running > 1) return false;
  return action === 'stop' || use.rssBytes <= use.limitBytes;
}

export function isHigh({ rssBytes, limitBytes }: MemoryUse): boolean {
  return rssBytes > limitBytes * HIGH_SHARE;
}

export function describeExcess({ rssBytes, limitBytes }: MemoryUse): string {
  const [rssMb, limitMb] = [rssBytes, limitBytes].map((bytes) => Math.round(bytes / MB));
  return `the process uses ${rssMb} MB of memory, the limit is ${limitMb} MB`;
}
