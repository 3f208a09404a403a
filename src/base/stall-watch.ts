// Notices when what is under way makes no progress for too long. One timer, whatever is under way.
import type { Clock } from './clock.ts';

export interface StallWatchOptions {
  clock: Clock;
  /** Longest time without progress, ms. */
  stallMs: number;
  /** Called once; nothing is watched afterwards. */
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

  /** One more is under way. */
  begin(): void {
    if (this.#underWay++ === 0) this.move();
    if (!this.#cancel && !this.#isStopped) this.#checkAfter(this.#options.stallMs);
  }

  /** Something under way has made progress. */
  move(): void {
    this.#movedAt = this.#options.clock.now();
  }

  /** One of those under way is over. */
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
