// A clock that runs in real time and can be moved forward, so that tests need not wait.
import {
  clearInterval,
  clearTimeout,
  letOthersRun,
  type ResumableClock,
  setInterval,
  setTimeout,
  wallTime,
} from '../base/clock.ts';

/** A clock that a test can move forward. */
export interface MovableClock extends ResumableClock {
  /** Moves the time forward by `ms` and runs the due timers in order. */
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

  now = (): number => wallTime() + this.#offsetMs;

  startFrom(time: number): void {
    this.#offsetMs += Math.max(0, time - this.now());
  }

  /** `now` is good enough: nothing survives the process. */
  monotonic(): number {
    return this.now();
  }

  after(ms: number, act: () => void): () => void {
    const timer: Timer = {
      at: this.now() + ms,
      act,
      // A harness that is not closed lets the process exit; see keepAlive.
      handle: setTimeout(() => this.#fire(timer), ms).unref(),
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

const FOREVER_MS = 2 ** 31 - 1;

let waits = 0;
let handle: NodeJS.Timeout | undefined;

/** Keeps the process alive until the promise settles, because a program waits for it. */
export async function keepAlive<T>(promise: Promise<T>): Promise<T> {
  waits += 1;
  handle ??= setInterval(() => {}, FOREVER_MS);
  try {
    return await promise;
  } finally {
    waits -= 1;
    if (waits === 0) {
      clearInterval(handle);
      handle = undefined;
    }
  }
}
