// Bounds what topics cost: the time of the event loop that those of one user and those of all users take, and the bytes that
// are kept for one user.
import { type Clock, setImmediate, sleep } from '../../base/clock.ts';
import { SLICE_MS, yieldToLoop } from '../../base/slices.ts';
import { ProblemError } from '../../wire/problem.ts';
import { EVENT_LIMITS } from '../../wire/routes/event-topics.ts';

const RETRY_MS = 5_000;

/** Loop time that may still be taken, ms; below 0, the next read waits. */
export interface LoopCredit {
  freeMs: number;
  /** Unix ms. */
  at: number;
}

/** `burstMs` at once, `share` of the time in the long run. */
export interface LoopBound {
  share: number;
  burstMs: number;
}

/** Credit grows with time, up to `burstMs`. */
export function spendLoopTime(
  { at, freeMs }: LoopCredit,
  { now, spentMs }: { now: number; spentMs: number },
  { burstMs, share }: LoopBound,
): LoopCredit {
  const free = Math.min(burstMs, freeMs + Math.max(0, now - at) * share);
  return { freeMs: free - spentMs, at: now };
}

/** Time until the next read may begin, ms. */
export function waitForCredit({ freeMs }: LoopCredit, { share }: LoopBound): number {
  return freeMs >= 0 ? 0 : Math.ceil(-freeMs / share);
}

/** The time of the event loop that topics take: those of one user, or all. */
export class LoopTime {
  readonly #clock: Clock;
  readonly #bound: LoopBound;
  #credit: LoopCredit;
  #last: Promise<void> = Promise.resolve();

  constructor(clock: Clock, bound: LoopBound) {
    this.#clock = clock;
    this.#bound = bound;
    this.#credit = { freeMs: bound.burstMs, at: clock.now() };
  }

  /** The whole credit is free again. */
  get isRested(): boolean {
    this.spend(0);
    return this.#credit.freeMs === this.#bound.burstMs;
  }

  spend(spentMs: number): void {
    const now = this.#clock.now();
    this.#credit = spendLoopTime(this.#credit, { now, spentMs }, this.#bound);
  }

  /**
   * Resolves when there is credit, and then `next` has resolved: one in each iteration of the event loop, in the order of the
   * calls, so that its time is known before the next.
   */
  admit(ended: AbortSignal, next = async () => {}): Promise<void> {
    const admitted = this.#last.then(() => this.#rest(ended)).then(next);
    this.#last = admitted.then(() => new Promise((resolve) => setImmediate(resolve)));
    return admitted;
  }

  async #rest(ended: AbortSignal): Promise<void> {
    for (;;) {
      this.spend(0);
      const waitMs = ended.aborted ? 0 : waitForCredit(this.#credit, this.#bound);
      if (waitMs === 0) return;
      await sleep(this.#clock, waitMs, ended);
    }
  }
}

export interface UserReadsOptions {
  clock: Clock;
  /** Time that passes while code runs, ms. */
  monotonic: () => number;
  /** Of all users. */
  all: LoopTime;
  /** Receives the loop time of each read, in parts. */
  note: (spentMs: number) => void;
}

export class UserReads {
  readonly #options: UserReadsOptions;
  readonly #own: LoopTime;
  #heldBytes = 0;

  constructor(options: UserReadsOptions) {
    this.#options = options;
    this.#own = new LoopTime(options.clock, EVENT_LIMITS.userLoop);
  }

  /** The whole credit is free again. */
  get isRested(): boolean {
    return this.#own.isRested;
  }

  /** Resolves when the next read may begin. A user has one place in the line of all users. */
  admit(ended: AbortSignal): Promise<void> {
    return this.#own.admit(ended, () => this.#options.all.admit(ended));
  }

  /**
   * Loads something, uses it, and counts the time. A load that ends in the iteration of the event loop in which it began has
   * waited for nothing; otherwise its time after the first wait does not count, because other work has run meanwhile.
   */
  async measure<T>(load: () => Promise<T>, use: (loaded: T) => void): Promise<void> {
    const { monotonic } = this.#options;
    let isSameIteration = true;
    setImmediate(() => {
      isSameIteration = false;
    });
    const startedAt = monotonic();
    let [waitedFrom, waitedUntil] = [startedAt, startedAt];
    try {
      const loading = load();
      waitedFrom = monotonic();
      const loaded = await loading.finally(() => {
        waitedUntil = isSameIteration ? waitedFrom : monotonic();
      });
      use(loaded);
    } finally {
      this.#spend(monotonic() - startedAt - (waitedUntil - waitedFrom));
    }
  }

  /** Calls all of them, for a slice of time in each iteration of the event loop, and counts the time. */
  async callAll(calls: readonly (() => void)[]): Promise<void> {
    const { monotonic } = this.#options;
    let startedAt = monotonic();
    for (const call of calls) {
      call();
      const spentMs = monotonic() - startedAt;
      if (spentMs < SLICE_MS) continue;
      this.#spend(spentMs);
      await yieldToLoop();
      startedAt = monotonic();
    }
    this.#spend(monotonic() - startedAt);
  }

  #spend(spentMs: number): void {
    this.#options.note(spentMs);
    this.#own.spend(spentMs);
    this.#options.all.spend(spentMs);
  }

  /** @throws ProblemError `rate_limited` */
  keep(bytes: number): void {
    if (bytes > 0 && this.#heldBytes + bytes > EVENT_LIMITS.userBytes) {
      const detail = `Your event streams already hold ${this.#heldBytes} bytes of different topics, at most ${EVENT_LIMITS.userBytes} are held; close some.`;
      throw new ProblemError('rate_limited', detail, { retryAfterMs: RETRY_MS });
    }
    this.#heldBytes += bytes;
  }
}
