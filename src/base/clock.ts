// Clocks that are passed as arguments: the machine's clock, and one that a test drives.

/** The timers from before a test replaces them: fake timers must not stop the harness. */
export const {
  clearImmediate,
  clearInterval,
  clearTimeout,
  setImmediate,
  setInterval,
  setTimeout,
} = globalThis;
export const { now: wallTime } = Date;
/** Monotonic time since the process or thread started, ms. */
export const elapsedTime = performance.now.bind(performance);

/** Time in ms since the Unix epoch, which never goes back, and timers in the same time. */
export interface Clock {
  now(): number;
  /** Calls `act` once after about `ms`, perhaps a few ms early; the returned function cancels the call. */
  after(ms: number, act: () => void): () => void;
}

/** A clock that can continue from a time that an earlier process recorded. */
export interface ResumableClock extends Clock {
  /** From now on, `now()` returns `time` or later. */
  startFrom(time: number): void;
  /** Monotonic time, ms: neither `startFrom` nor a change of the wall clock affects it. */
  monotonic(): number;
}

/** Speed of time while this clock is ahead of the wall clock, which gains 3 s a minute on it. */
const CATCH_UP_RATE = 0.95;

interface TimeSources {
  /** Unix ms; the wall clock may be set back or forward at any time. */
  wall: () => number;
  /** Monotonic time, ms. */
  monotonic: () => number;
}

/**
 * Wall time that never goes back. After the wall clock is set back, time continues from its last
 * value, 5 % slower, until the wall clock has caught up. If time went back by an hour, a lease of
 * 15 s would last an hour longer. A wall clock that is set forward is followed at once.
 */
export class SteadyTime {
  readonly monotonic: () => number;
  readonly #sources: TimeSources;
  #time: number;
  #readAt: number;

  constructor(sources: TimeSources) {
    this.#sources = sources;
    this.monotonic = sources.monotonic;
    this.#time = sources.wall();
    this.#readAt = sources.monotonic();
  }

  now = (): number => {
    const { monotonic, wall } = this.#sources;
    const elapsedMs = monotonic() - this.#readAt;
    this.#readAt += elapsedMs;
    this.#time = Math.max(wall(), this.#time + elapsedMs * CATCH_UP_RATE);
    return Math.floor(this.#time);
  };

  /** From now on, `now()` returns `time` or later. */
  startFrom = (time: number): void => {
    this.#time = Math.max(this.now(), time);
  };
}

const steadyTime = new SteadyTime({ wall: () => Date.now(), monotonic: () => performance.now() });

export const systemClock: ResumableClock = {
  now: steadyTime.now,
  startFrom: steadyTime.startFrom,
  monotonic: steadyTime.monotonic,
  after(ms, act) {
    // A program that embeds the client may replace the timers for its tests.
    const timer = globalThis.setTimeout(act, ms);
    return () => globalThis.clearTimeout(timer);
  },
};

/** Node calls a timer with a longer time at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls `act` once when the clock shows `at` or later; the returned function cancels the call. Timers of Node count from the
 * start of an iteration of its event loop, so they fire early after a long one, and who then compares times waits for ever.
 */
export function callAt(clock: Clock, at: number, act: () => void): () => void {
  let cancel = wait();
  function wait(): () => void {
    return clock.after(Math.min(Math.max(0, at - clock.now()), MAX_TIMER_MS), () => {
      if (clock.now() < at) cancel = wait();
      else act();
    });
  }
  return () => cancel();
}

/** Adds up the time in which something stands still, ms. Its limits leave that time out. */
export class Standstill {
  readonly #now: () => number;
  #ms = 0;
  #since: number | undefined;

  constructor(now: () => number) {
    this.#now = now;
  }

  get isOn(): boolean {
    return this.#since !== undefined;
  }

  get ms(): number {
    return this.#ms + (this.#since === undefined ? 0 : this.#now() - this.#since);
  }

  begin(): void {
    this.#since ??= this.#now();
  }

  end(): void {
    this.#ms = this.ms;
    this.#since = undefined;
  }
}

/** Least time between two looks at what stands still, ms. */
const STANDSTILL_MS = 100;

/** Calls `act` once after `ms` without the time that `standstill` counts meanwhile; the returned function cancels the call. */
export function callAfterRun(
  clock: Pick<Clock, 'after'>,
  ms: number,
  standstill: Pick<Standstill, 'ms'>,
  act: () => void,
): () => void {
  let counted = standstill.ms;
  const check = () => {
    const missing = standstill.ms - counted;
    if (missing <= 0) return act();
    counted += missing;
    cancel = clock.after(Math.max(missing, STANDSTILL_MS), check);
  };
  let cancel = clock.after(ms, check);
  return () => cancel();
}

/** Resolves after `ms`, or as soon as the signal aborts; never rejects. */
export function sleep(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      cancel();
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const cancel = clock.after(ms, end);
    signal?.addEventListener('abort', end, { once: true });
  });
}

interface ManualTimer {
  at: number;
  order: number;
  act: () => void;
}

/** A clock that stands still until `advance` moves it. Due timers run in the order of their times. */
export class ManualClock implements ResumableClock {
  #now: number;
  #order = 0;
  #skippedMs = 0;
  readonly #timers = new Set<ManualTimer>();

  constructor(startAt = Date.UTC(2026, 0, 1)) {
    this.#now = startAt;
  }

  now = (): number => this.#now;

  startFrom(time: number): void {
    const skippedMs = Math.max(0, time - this.#now);
    this.#skippedMs += skippedMs;
    this.#now += skippedMs;
  }

  monotonic = (): number => this.#now - this.#skippedMs;

  after(ms: number, act: () => void): () => void {
    const timer = { at: this.#now + Math.max(0, ms), order: this.#order++, act };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /**
   * Advances time by `ms`. After each timer, the work that it started runs before the next timer
   * fires.
   */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await letOthersRun();
    for (let timer = this.#nextTimer(until); timer; timer = this.#nextTimer(until)) {
      this.#timers.delete(timer);
      this.#now = Math.max(this.#now, timer.at);
      timer.act();
      await letOthersRun();
    }
    this.#now = until;
    await letOthersRun();
  }

  #nextTimer(until: number): ManualTimer | undefined {
    let first: ManualTimer | undefined;
    for (const timer of this.#timers) {
      if (timer.at > until) continue;
      if (!first || timer.at < first.at || (timer.at === first.at && timer.order < first.order)) {
        first = timer;
      }
    }
    return first;
  }
}

/** Waits a few iterations of the event loop, enough for promise chains and grouped commits to settle. */
export async function letOthersRun(): Promise<void> {
  for (let at = 0; at < 8; at++) await new Promise((resolve) => setImmediate(resolve));
}
