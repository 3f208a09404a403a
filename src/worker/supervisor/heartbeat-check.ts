// Detects a worker process whose event loop is blocked. It runs no handler code, so a blocked one is
// broken.
import type { Clock } from '../../base/clock.ts';
import type { KeptProcess } from './worker-process.ts';

const CHECK_MS = 5_000;
/**
 * Checks in a row without a new heartbeat before the process counts as silent. Checks are counted
 * instead of time, because after a pause of the whole machine everything is late.
 */
const MAX_MISSED = 12;

export interface HeartbeatCheckOptions {
  clock: Clock;
  /** The process that must send heartbeats now, if any. */
  findProcess: () => KeptProcess | undefined;
  onSilent: (process: KeptProcess) => void;
}

export class HeartbeatCheck {
  readonly #options: HeartbeatCheckOptions;
  #process: KeptProcess | undefined;
  #beats = 0;
  #missed = 0;
  #cancelNext: () => void = () => {};

  constructor(options: HeartbeatCheckOptions) {
    this.#options = options;
  }

  start(): void {
    this.#cancelNext = this.#options.clock.after(CHECK_MS, () => {
      this.start();
      this.#check();
    });
  }

  stop(): void {
    this.#cancelNext();
  }

  #check(): void {
    const process = this.#options.findProcess();
    if (!process) return;
    const isAlive = this.#process !== process || this.#beats !== process.beats;
    this.#process = process;
    this.#beats = process.beats;
    this.#missed = isAlive ? 0 : this.#missed + 1;
    if (this.#missed === MAX_MISSED) this.#options.onSilent(process);
  }
}
