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

type BeatingProcess = Pick<KeptProcess, 'beats'>;

export interface HeartbeatCheckOptions<Process extends BeatingProcess> {
  clock: Clock;
  /** The process that must send heartbeats now, if any. */
  findProcess: () => Process | undefined;
  onSilent: (process: Process) => void;
}

export class HeartbeatCheck<Process extends BeatingProcess = KeptProcess> {
  readonly #options: HeartbeatCheckOptions<Process>;
  #process: Process | undefined;
  #beats = 0;
  #missed = 0;
  #cancelNext: () => void = () => {};

  constructor(options: HeartbeatCheckOptions<Process>) {
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
