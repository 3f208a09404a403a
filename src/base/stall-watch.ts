// Calls back if the running transfers make no progress for too long. It uses one timer for all of
// them.
import type { Clock } from './clock.ts';

export interface StallWatchOptions {
  clock: Clock;
  /** Longest time without progress, ms. */
  stallMs: number;
  /** Called once; the watch ends then. */
  onStall: () => void;
}

export class StallWatch {
  readonly #options: StallWatchOptions;
  #underWay = 0;
  #movedAt = 0;
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(options: StallWatchOptions) {
    this.#options = options;
  }

  /** A transfer begins. */
  begin(): void {
    if (this.#underWay++ === 0) this.move();
    if (!this.#cancel && !this.#isStopped) this.#checkAfter(this.#options.stallMs);
  }

  /** A transfer has made progress. */
  move(): void {
    this.#movedAt = this.#options.clock.now();
  }

  /** A transfer has ended. */
  end(): void {
    this.#underWay--;
    this.move();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  #checkAfter(ms: number): void {
    const { clock, onStall, stallMs } = this.#options;
    this.#cancel = clock.after(ms, () => {
      this.#cancel = undefined;
      if (this.#underWay === 0) return;
      const leftMs = stallMs - (clock.now() - this.#movedAt);
      if (leftMs > 0) return this.#checkAfter(leftMs);
      this.stop();
      onStall();
    });
  }
}
