// The free slots of one handler thread as its worker knows them. For a batch handler the thread reports
// them; jobs that are still on their way to the thread are subtracted.
import type { BatchSettings } from '../../handler/batch/settings.ts';

/** What a thread reports about its batches. */
export interface ReportedCapacity {
  /** Number of the last job that the thread had received. */
  readonly received: number;
  /** Further jobs that could start now or when an incomplete batch starts. */
  readonly free: number;
  /** Jobs that wait for their batch to start. */
  readonly waiting: number;
  /** Time until an incomplete batch starts and takes its free places with it, ms. */
  readonly fillMs: number | undefined;
}

export interface LaneCapacityOptions {
  slots: number;
  /** Undefined if the handler takes single jobs. */
  batch: BatchSettings | undefined;
  /** In ms. */
  now: () => number;
}

export class LaneCapacity {
  readonly slots: number;
  readonly #batch: BatchSettings | undefined;
  readonly #now: () => number;
  #reported: ReportedCapacity;
  #lastSent = 0;
  /** When an incomplete batch starts. */
  #filledAt: number | undefined;

  constructor({ batch, now, slots }: LaneCapacityOptions) {
    this.slots = slots;
    this.#batch = batch;
    this.#now = now;
    this.#reported = { received: 0, free: slots, waiting: 0, fillMs: undefined };
  }

  /** A job with this number has been sent to the thread. Numbers grow by one. */
  send(number: number): void {
    this.#lastSent = number;
    // The thread's own report of the first job of a batch may come too late for the next take.
    if (this.#batch) this.#filledAt ??= this.#now() + this.#batch.maxWaitMs;
  }

  report(reported: ReportedCapacity): void {
    this.#reported = reported;
    if (reported.fillMs !== undefined) this.#filledAt = this.#now() + reported.fillMs;
    else if (reported.received === this.#lastSent) this.#filledAt = undefined;
  }

  /** Free slots while the thread has `jobs`. */
  countFree(jobs: number): number {
    const free = this.slots - jobs;
    if (!this.#batch) return free;
    // The batch has started or is about to: the thread will report what is left.
    if (this.freeForMs === 0) return 0;
    return Math.max(0, Math.min(free, this.#reported.free - this.#onTheirWay));
  }

  /** After this time the free slots may be gone, ms; undefined if they stay free. */
  get freeForMs(): number | undefined {
    return this.#filledAt === undefined ? undefined : Math.max(0, this.#filledAt - this.#now());
  }

  /** A batch has jobs and is not full: further jobs should join it. */
  get isFilling(): boolean {
    return this.#batch !== undefined && this.#reported.waiting + this.#onTheirWay > 0;
  }

  get #onTheirWay(): number {
    return this.#lastSent - this.#reported.received;
  }
}
