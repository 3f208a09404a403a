// Bounds what the topics of one user cost: the time of the event loop that their reads take, and the bytes that are kept.
import { type Clock, setImmediate, sleep } from '../../base/clock.ts';
import { ownTurn, SLICE_MS } from '../../base/slices.ts';
import { ProblemError } from '../../wire/problem.ts';
import { EVENT_LIMITS } from '../../wire/routes/event-topics.ts';

const RETRY_MS = 5_000;

/** Loop time that a user may still take, ms; below 0, the next read waits. */
export interface LoopCredit {
  freeMs: number;
  /** Unix ms. */
  at: number;
}

/** Credit grows with time, up to `userBurstMs`. */
export function spendLoopTime(
  { at, freeMs }: LoopCredit,
  { now, spentMs }: { now: number; spentMs: number },
): LoopCredit {
  const { userBurstMs, userLoopShare } = EVENT_LIMITS;
  const free = Math.min(userBurstMs, freeMs + Math.max(0, now - at) * userLoopShare);
  return { freeMs: free - spentMs, at: now };
}

/** Time until the user's next read may begin, ms. */
export function waitForCredit({ freeMs }: LoopCredit): number {
  return freeMs >= 0 ? 0 : Math.ceil(-freeMs / EVENT_LIMITS.userLoopShare);
}

export interface UserReadsOptions {
  clock: Clock;
  /** Time that passes while code runs, ms. */
  monotonic: () => number;
  /** Receives the loop time of each read, in parts. */
  note: (spentMs: number) => void;
}

export class UserReads {
  readonly #options: UserReadsOptions;
  #credit: LoopCredit;
  #kept = 0;
  #lastTurn: Promise<void> = Promise.resolve();

  constructor(options: UserReadsOptions) {
    this.#options = options;
    this.#credit = { freeMs: EVENT_LIMITS.userBurstMs, at: options.clock.now() };
  }

  /** The whole credit is free again. */
  get isRested(): boolean {
    this.#spend(0);
    return this.#credit.freeMs === EVENT_LIMITS.userBurstMs;
  }

  /** Resolves when the next read may begin: one in each turn of the event loop, so that its time is known before the next. */
  turn(ended: AbortSignal): Promise<void> {
    const turn = this.#lastTurn.then(() => this.#rest(ended));
    this.#lastTurn = turn.then(() => new Promise((resolve) => setImmediate(resolve)));
    return turn;
  }

  async #rest(ended: AbortSignal): Promise<void> {
    for (;;) {
      this.#spend(0);
      const waitMs = ended.aborted ? 0 : waitForCredit(this.#credit);
      if (waitMs === 0) return;
      await sleep(this.#options.clock, waitMs, ended);
    }
  }

  /**
   * Loads something, uses it, and counts the time. A load that ends in the turn of the event loop in which it began has
   * waited for nothing; otherwise its time after the first wait does not count, because other work has run meanwhile.
   */
  async measure<T>(load: () => Promise<T>, use: (loaded: T) => void): Promise<void> {
    const { monotonic } = this.#options;
    let isSameTurn = true;
    setImmediate(() => {
      isSameTurn = false;
    });
    const startedAt = monotonic();
    let [waitedFrom, waitedUntil] = [startedAt, startedAt];
    try {
      const loading = load();
      waitedFrom = monotonic();
      const loaded = await loading.finally(() => {
        waitedUntil = isSameTurn ? waitedFrom : monotonic();
      });
      use(loaded);
    } finally {
      this.#spend(monotonic() - startedAt - (waitedUntil - waitedFrom));
    }
  }

  /** Calls all of them, for a slice of time in each turn of the event loop, and counts the time. */
  async callAll(calls: readonly (() => void)[]): Promise<void> {
    const { monotonic } = this.#options;
    let startedAt = monotonic();
    for (const call of calls) {
      call();
      const spentMs = monotonic() - startedAt;
      if (spentMs < SLICE_MS) continue;
      this.#spend(spentMs);
      await ownTurn();
      startedAt = monotonic();
    }
    this.#spend(monotonic() - startedAt);
  }

  #spend(spentMs: number): void {
    this.#options.note(spentMs);
    this.#credit = spendLoopTime(this.#credit, { now: this.#options.clock.now(), spentMs });
  }

  /** @throws ProblemError `rate_limited` */
  keep(bytes: number): void {
    if (bytes > 0 && this.#kept + bytes > EVENT_LIMITS.userBytes) {
      const detail = `Your event streams already hold ${this.#kept} bytes of different topics, at most ${EVENT_LIMITS.userBytes} are held; close some.`;
      throw new ProblemError('rate_limited', detail, { retryAfterMs: RETRY_MS });
    }
    this.#kept += bytes;
  }
}
