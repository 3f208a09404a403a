// Takes jobs for the free slots, with one call at a time, and passes them to the attempts.
import { setImmediate, sleep } from '../base/clock.ts';
import { createRandomId } from '../base/random-id.ts';
import type { Lease, TakeRequest } from '../wire/link/worker-link.ts';
import { MAX_LISTED } from '../wire/message-bounds.ts';
import type { Attempts } from './attempts.ts';
import type { CircuitBreaker } from './circuit-breaker.ts';
import type { Reporter } from './reports/reporter.ts';
import {
  callWithin,
  EarlyAnswers,
  RetryPace,
  type Session,
  TRANSFER_LIMIT_MS,
  toLinkError,
} from './session.ts';
import type { CompleteWorkerOptions } from './worker-options.ts';

/** The protocol's limit for one take. */
const MAX_PER_TAKE = 1_000;
/** An answer that comes this long after the take's own wait is reported as trouble. */
const LATE_ANSWER_MS = 10_000;
/** The end of a shorter wait, for an incomplete batch, cannot be told from an early answer, ms. */
const BRIEF_WAIT_MS = 100;

interface TakeLoopParts {
  session: Session;
  attempts: Attempts;
  reporter: Reporter;
  /** The worker takes no jobs while this returns true. */
  isPaused: () => boolean;
  breaker: CircuitBreaker;
  /** Woken when slots may be free. */
  room: Wakeup;
  openTake: OpenTake;
}

/** Ends a wait of the loop. It exists before the loop, so that the parts which the loop needs can wake it. */
export class Wakeup {
  #resolve: () => void = () => {};

  wake(): void {
    this.#resolve();
  }

  /** Resolves with the next `wake`. */
  wait(): Promise<void> {
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }
}

/** The open take, if there is one. It exists before the loop, so that a part which the loop needs can end it. */
export class OpenTake {
  #open: { abort: () => void; ended: Promise<void> } | undefined;
  #isBrokenOff = false;

  /** Jobs may arrive. */
  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** Whether it was broken off. */
  get isBrokenOff(): boolean {
    return this.#isBrokenOff;
  }

  /** @returns how it ends */
  begin(abort: () => void): () => void {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    this.#open = { abort, ended };
    return () => {
      this.#open = undefined;
      resolve();
    };
  }

  /** Breaks the take off; resolves when the loop has told the platform which of its leases have arrived. */
  async breakOff(): Promise<void> {
    const open = this.#open;
    if (!open) return;
    if (!this.#isBrokenOff) {
      this.#isBrokenOff = true;
      open.abort();
    }
    await open.ended;
  }

  /** The platform knows which leases have arrived. */
  settle(): void {
    this.#isBrokenOff = false;
  }
}

export class TakeLoop {
  readonly #options: CompleteWorkerOptions;
  readonly #parts: TakeLoopParts;
  readonly #stopping = new AbortController();
  readonly #pace = new RetryPace({ baseMs: 100, maxMs: 5_000, jitter: 0.2 });
  readonly #earlyAnswers: EarlyAnswers;
  #lastTakeAt: number | undefined;
  #lastProgressAt: number;
  #isFull = false;
  #takes = 0;

  constructor(options: CompleteWorkerOptions, parts: TakeLoopParts) {
    this.#options = options;
    this.#parts = parts;
    this.#earlyAnswers = new EarlyAnswers(options.clock);
    this.#lastProgressAt = this.#options.clock.now();
  }

  /** Time of the last answered take, Unix ms. */
  get lastTakeAt(): number | undefined {
    return this.#lastTakeAt;
  }

  /**
   * Why the loop is stuck; undefined if it works or waits for attempts or reports. It is stuck if a
   * take is late, or if no slot is free although nothing runs.
   */
  get trouble(): string | undefined {
    const limitMs = this.#parts.session.terms.takeWaitMs + LATE_ANSWER_MS;
    const isBusy = this.#parts.attempts.active > 0 || this.#parts.reporter.isCongested;
    if (this.#isFull && isBusy) return undefined;
    if (this.#options.clock.now() - this.#lastProgressAt <= limitMs) return undefined;
    return this.#isFull
      ? 'no slot is free although no job runs'
      : 'the platform does not answer takes';
  }

  /** Takes nothing more; leases that still arrive are released. */
  stop(): void {
    this.#stopping.abort();
    this.#parts.room.wake();
  }

  /** Ends after `stop`. @throws LinkError `stale_incarnation` */
  async run(): Promise<void> {
    const { signal } = this.#stopping;
    this.#lastProgressAt = this.#options.clock.now();
    for (;;) {
      const max = await this.#waitForSlot();
      if (signal.aborted) return;
      const askedAt = this.#options.clock.now();
      const waitMs = this.#limitWait();
      const leases = await this.#take(max, waitMs);
      if (this.#parts.openTake.isBrokenOff && !signal.aborted) await this.#settleBrokenOff(leases);
      if (!leases) continue;
      this.#lastTakeAt = this.#lastProgressAt = this.#options.clock.now();
      if (signal.aborted && !this.#mustRunLateJobs) this.#parts.attempts.release(leases);
      else if (leases.length > 0) this.#accept(leases);
      const isBrief = waitMs < Math.min(BRIEF_WAIT_MS, this.#parts.session.terms.takeWaitMs);
      const isNews = leases.length > 0 || isBrief;
      await this.#earlyAnswers.slowDown({ askedAt, waitMs, isNews }, signal);
    }
  }

  /**
   * The answer of a take that was broken off may be lost with its leases. A take that does not wait names those that have
   * arrived, so the platform takes the others back.
   */
  async #settleBrokenOff(arrived: readonly Lease[] | undefined): Promise<void> {
    const leases = arrived ? [] : await this.#take(1, 0);
    this.#parts.openTake.settle();
    if (leases && leases.length > 0) this.#accept(leases);
  }

  /** The breaker may have opened during the take. */
  #accept(leases: readonly Lease[]): void {
    const limit = this.#mustRunLateJobs
      ? leases.length
      : this.#parts.breaker.limitTakes(this.#parts.attempts.active);
    this.#parts.attempts.accept(leases.slice(0, limit));
    this.#parts.attempts.release(leases.slice(limit));
  }

  /** How long the next take may wait, ms: until an incomplete batch takes its free slots. */
  #limitWait(): number {
    const { freeForMs = Number.POSITIVE_INFINITY } = this.#options.executor;
    return Math.ceil(Math.min(this.#parts.session.terms.takeWaitMs, freeForMs));
  }

  /** If the platform cannot take jobs back, a job that arrives during shutdown must run. */
  get #mustRunLateJobs(): boolean {
    return this.#parts.session.terms.takesBack === false;
  }

  get #capacity(): number {
    if (this.#parts.attempts.hasSolo || this.#parts.reporter.isCongested || this.#parts.isPaused())
      return 0;
    const free = Math.min(
      this.#options.executor.free,
      this.#options.executor.slots - this.#parts.attempts.active,
    );
    // A take, a renewal and a hello name all leases that the worker holds.
    const nameable = MAX_LISTED - this.#parts.attempts.tokens().length;
    const allowed = this.#parts.breaker.limitTakes(this.#parts.attempts.active);
    return Math.min(free, nameable, allowed, MAX_PER_TAKE);
  }

  async #waitForSlot(): Promise<number> {
    for (;;) {
      // Read once: the free slots of an incomplete batch vanish with time.
      const capacity = this.#capacity;
      if (capacity >= 1 || this.#stopping.signal.aborted) {
        this.#isFull = false;
        return capacity;
      }
      this.#isFull = true;
      await this.#parts.room.wait();
      this.#lastProgressAt = this.#options.clock.now();
      // Slots that become free in the same iteration of the event loop share one take.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  /** Undefined if the take failed; its leases may arrive with a later take. */
  async #take(max: number, waitMs: number): Promise<Lease[] | undefined> {
    const { link, workerId, incarnation } = this.#options;
    const abort = new AbortController();
    const { signal } = abort;
    const stop = () => abort.abort();
    if (this.#stopping.signal.aborted) stop();
    this.#stopping.signal.addEventListener('abort', stop);
    const end = this.#parts.openTake.begin(stop);
    // Repeated unchanged after a failure: the takeId returns leases whose answer was lost.
    const request: TakeRequest = {
      workerId,
      incarnation,
      takeId: createRandomId(),
      seq: ++this.#takes,
      max,
      waitMs,
      held: this.#parts.attempts.tokens(),
    };
    const limits = { clock: this.#options.clock, limitMs: waitMs + TRANSFER_LIMIT_MS, signal };
    const call = () => callWithin(limits, (callSignal) => link.take(request, callSignal));
    try {
      return await this.#parts.session.callUntilAnswered(call, {
        verb: 'take',
        signal,
        pace: this.#pace,
      });
    } catch (thrown) {
      const error = toLinkError(thrown);
      if (signal.aborted) return undefined;
      if (error.code !== 'invalid') throw error;
      const waitMs = this.#pace.next(error);
      this.#options.log.error({ err: error, waitMs }, 'take refused');
      await sleep(this.#options.clock, waitMs, signal);
      return undefined;
    } finally {
      this.#stopping.signal.removeEventListener('abort', stop);
      end();
    }
  }
}
