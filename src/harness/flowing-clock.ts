// Time that passes by itself and can be moved on: tests need not wait for what takes long.
import { letOthersRun, type ResumableClock } from '../base/clock.ts';

/** A clock that a test can move on. */
export interface MovableClock extends ResumableClock {
  /** Moves time on by `ms`; what becomes due on the way runs, in the order of its time. */
  advance(ms: number): Promise<void>;
}

interface Timer {
  at: number;
  act: () => void;
  handle: NodeJS.Timeout;
}

export class FlowingClock implements MovableClock {
  #offsetMs = 0;
  readonly #timers = new Set<Timer>();

  now = (): number => Date.now() + this.#offsetMs;

  startFrom(time: number): void {
    this.#offsetMs += Math.max(0, time - this.now());
  }

  /** As good as `now`: nothing is kept from one process to the next. */
  monotonic(): number {
    return this.now();
  }

  after(ms: number, act: () => void): () => void {
    const timer: Timer = {
      at: this.now() + ms,
      act,
      handle: setTimeout(() => this.#fire(timer), ms),
    };
    this.#timers.add(timer);
    return () => {
      clearTimeout(timer.handle);
      this.#timers.delete(timer);
    };
  }

  async advance(ms: number): Promise<void> {
    const until = this.now() + ms;
    await letOthersRun();
    for (let timer = this.#nextUntil(until); timer; timer = this.#nextUntil(until)) {
      this.#offsetMs += Math.max(0, timer.at - this.now());
      this.#fire(timer);
      await letOthersRun();
    }
    this.#offsetMs += Math.max(0, until - this.now());
    await letOthersRun();
  }

  #fire(timer: Timer): void {
    clearTimeout(timer.handle);
    if (this.#timers.delete(timer)) timer.act();
  }

  #nextUntil(until: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at <= until && (!first || timer.at < first.at)) first = timer;
    }
    return first;
  }
}
