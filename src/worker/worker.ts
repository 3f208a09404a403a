// The worker's life: from setup over taking and running jobs to the farewell. It owns the state and
// the order of things; the loops beside it do the work.
import { type Clock, sleep } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { LeaseRef } from '../wire/worker-link.ts';
import { Attempts } from './attempts.ts';
import type { Executor } from './executor.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import { callWithin, toLinkError } from './link-call.ts';
import { Reporter } from './reporter.ts';
import { RetryPace } from './retry-pace.ts';
import { Session } from './session.ts';
import { TakeLoop } from './take-loop.ts';
import {
  type CompleteWorkerOptions,
  completeWorkerOptions,
  type WorkerOptions,
} from './worker-options.ts';

export type { WorkerOptions } from './worker-options.ts';

/**
 * `starting`: the handler's setup, then the first hello. `ready`: takes jobs. `draining`: takes none,
 * lets running ones end. `stopped`: has said bye. `failed`: cannot go on, and holds nothing.
 */
export type WorkerState =
  | { readonly name: 'starting'; readonly step: 'setup' | 'hello' }
  | { readonly name: 'ready' }
  | { readonly name: 'draining'; readonly askedBy: 'caller' | 'platform' }
  | { readonly name: 'stopped'; readonly farewell: Farewell }
  | { readonly name: 'failed'; readonly reason: string };

export interface Farewell {
  /** Every outcome was acknowledged. */
  delivered: boolean;
  /** Attempts whose outcome was not. */
  undelivered: LeaseRef[];
  /** Jobs that did not end in time and were given back. */
  abandoned: number;
}

export interface WorkerHealth {
  /** Setup is done, takes are answered, the executor can run jobs, no slot is stuck, leases are renewed. */
  ready: boolean;
  /** Why it is not ready. */
  reason?: string;
  state: WorkerState['name'];
  slots: number;
  running: number;
  /** Of the running ones: those that were told to end long ago, and did not. */
  stuck: number;
  /** Unix ms; of the last answer. */
  lastTakeAt?: number;
  lastRenewAt?: number;
  /** Reports not yet acknowledged. */
  outboxDepth: number;
  /** Why they would not outlive the process, though they ought to. */
  outboxTrouble?: string;
}

export interface Worker {
  /**
   * Resolves when the worker takes jobs, or was told to leave before it did. An unavailable platform
   * is waited for. @throws HandlerNotLoadedError, whatever else the executor's start throws, and
   * LinkError `stale_incarnation` or `invalid`; the state is `failed` then.
   */
  start(): Promise<void>;
  /** Lets running jobs end for up to `drainMs`, then leaves. Asked again, the same farewell. */
  drain(): Promise<Farewell>;
  /** Leaves without waiting for running jobs; hastens a drain that is under way. */
  stop(): Promise<Farewell>;
  /** Resolves with the state `stopped` or `failed`, whatever led to it. */
  readonly ended: Promise<WorkerState>;
  readonly state: WorkerState;
  health(): WorkerHealth;
}

/** A worker that has not begun: call `start`, once. */
export function createWorker(options: WorkerOptions): Worker {
  return new QueueWorker(completeWorkerOptions(options));
}

class QueueWorker implements Worker {
  readonly ended: Promise<WorkerState>;
  readonly #options: CompleteWorkerOptions;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #executor: Executor;
  readonly #session: Session;
  readonly #reporter: Reporter;
  readonly #attempts: Attempts;
  readonly #takeLoop: TakeLoop;
  readonly #leaseKeeper: LeaseKeeper;
  /** Ends the session's waits. */
  readonly #over = new AbortController();
  /** Ends the wait for running jobs. */
  readonly #hurry = new AbortController();
  #state: WorkerState = { name: 'starting', step: 'setup' };
  #leaving: Promise<Farewell> | undefined;
  #executorStopped: Promise<void> | undefined;
  #taking: Promise<void> = Promise.resolve();
  #resolveEnded: (state: WorkerState) => void = () => {};

  constructor(options: CompleteWorkerOptions) {
    const { clock, log, executor } = options;
    this.#options = options;
    this.#clock = clock;
    this.#log = log;
    this.#executor = executor;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    const session = new Session(options, this.#over.signal);
    const onFatal = (error: unknown) => this.#fail(error);
    const onAnswered = () => this.#takeLoop.poke();
    const reporter = new Reporter({ options, session, onFatal, onAnswered });
    const attempts = new Attempts({ options, reporter });
    this.#session = session;
    this.#reporter = reporter;
    this.#attempts = attempts;
    this.#takeLoop = new TakeLoop({ options, session, attempts, reporter });
    const onDrain = () => {
      void this.#leave('platform');
    };
    this.#leaseKeeper = new LeaseKeeper({ options, session, attempts, onDrain });
    attempts.onChange(() => this.#takeLoop.poke());
    executor.onChange(() => this.#takeLoop.poke());
  }

  get state(): WorkerState {
    return this.#state;
  }

  async start(): Promise<void> {
    try {
      const { timeoutMs } = await this.#executor.start();
      if (timeoutMs !== undefined) this.#attempts.limitTo(timeoutMs);
      if (this.#state.name !== 'starting') return;
      this.#state = { name: 'starting', step: 'hello' };
      await this.#session.greet();
    } catch (error) {
      // Told to leave meanwhile: the setup or the hello was given up for that.
      if (this.#state.name !== 'starting') return;
      this.#fail(error);
      throw error;
    }
    if (this.#state.name !== 'starting') return;
    this.#state = { name: 'ready' };
    this.#log.info(
      { workerId: this.#options.workerId, slots: this.#executor.slots },
      'worker ready',
    );
    this.#reporter.resume();
    this.#leaseKeeper.run().catch((error: unknown) => this.#fail(error));
    this.#taking = this.#takeLoop.run().catch((error: unknown) => this.#fail(error));
  }

  drain(): Promise<Farewell> {
    return this.#leave('caller');
  }

  stop(): Promise<Farewell> {
    this.#hurry.abort();
    return this.#leave('caller');
  }

  health(): WorkerHealth {
    const reason = this.#findTrouble();
    const lastTakeAt = this.#takeLoop.lastTakeAt;
    const lastRenewAt = this.#leaseKeeper.lastRenewAt;
    const outboxTrouble = this.#options.outbox.trouble;
    return {
      ready: reason === undefined,
      ...(reason !== undefined && { reason }),
      state: this.#state.name,
      slots: this.#state.name === 'starting' ? 0 : this.#executor.slots,
      running: this.#attempts.active,
      stuck: this.#attempts.stuck,
      ...(lastTakeAt !== undefined && { lastTakeAt }),
      ...(lastRenewAt !== undefined && { lastRenewAt }),
      outboxDepth: this.#reporter.depth,
      ...(outboxTrouble !== undefined && { outboxTrouble }),
    };
  }

  #findTrouble(): string | undefined {
    const state = this.#state;
    switch (state.name) {
      case 'starting':
        return this.#session.trouble ?? `starting: waiting for the ${state.step}`;
      case 'draining':
      case 'stopped':
        return state.name;
      case 'failed':
        return `failed: ${state.reason}`;
      case 'ready':
        if (this.#session.trouble) return this.#session.trouble;
        if (this.#executor.trouble) return this.#executor.trouble;
        if (this.#attempts.stuck > 0) {
          return `slots are stuck: ${this.#attempts.stuck} of ${this.#executor.slots}`;
        }
        if (this.#leaseKeeper.isOverdue) return 'leases could not be renewed in time';
        return this.#takeLoop.trouble;
    }
  }

  #leave(askedBy: 'caller' | 'platform'): Promise<Farewell> {
    this.#leaving ??= this.#sayFarewell(askedBy);
    return this.#leaving;
  }

  async #sayFarewell(askedBy: 'caller' | 'platform'): Promise<Farewell> {
    const before = this.#state.name;
    const undelivered = this.#options.outbox.undelivered();
    const delivered = before !== 'failed' && undelivered.length === 0;
    let farewell: Farewell = { delivered, undelivered, abandoned: 0 };
    if (before !== 'failed') {
      this.#state = { name: 'draining', askedBy };
      this.#log.info({ askedBy, running: this.#attempts.active }, 'worker draining');
    }
    if (before === 'ready') farewell = await this.#windUp();
    this.#endLoops();
    await this.#stopExecutor();
    if (this.#state.name === 'draining') {
      this.#log.info({ farewell }, 'worker stopped');
      this.#finish({ name: 'stopped', farewell });
    }
    return farewell;
  }

  /** Everything that is still owed to the platform, while the leases are kept alive. */
  async #windUp(): Promise<Farewell> {
    const { drainMs, forceMs, flushMs } = this.#options;
    const attempts = this.#attempts;
    const drainUntil = this.#clock.now() + drainMs;
    this.#takeLoop.stop();
    attempts.releaseWaiting();
    if (!(await this.#settles(attempts.idle(), drainMs, this.#hurry.signal))) {
      attempts.stopAll('shutdown');
      await this.#settles(attempts.idle(), forceMs);
    }
    const abandoned = attempts.abandonAll();
    if (abandoned > 0)
      this.#log.warn({ abandoned }, 'jobs did not end in time; they go back to the queue');
    // A take that was answered in that instant still brings leases, to be given back.
    await this.#settles(this.#taking, flushMs);
    // What is left of the drain is time for a platform that is away to come back.
    const hurry = this.#hurry.signal;
    const leftMs = hurry.aborted ? 0 : drainUntil - this.#clock.now();
    await this.#settles(this.#reporter.delivered(), leftMs, hurry);
    await this.#settles(this.#reporter.delivered(), flushMs);
    const undelivered = this.#options.outbox.undelivered();
    if (undelivered.length > 0) this.#log.error({ undelivered }, 'outcomes could not be delivered');
    await this.#options.outbox.secure();
    await this.#sayBye(this.#clock.now() + flushMs);
    return { delivered: undelivered.length === 0, undelivered, abandoned };
  }

  /** Unheard, it costs time only: the leases run out, and a successor's hello tells the same. */
  async #sayBye(until: number): Promise<void> {
    const { link, workerId, incarnation, outbox } = this.#options;
    const pace = new RetryPace({ baseMs: 100, maxMs: 1_000, jitter: 0.2 });
    const bye = { workerId, incarnation, reason: 'drained' as const, outbox: outbox.survivors() };
    for (;;) {
      try {
        const limitMs = Math.max(1, until - this.#clock.now());
        await callWithin({ clock: this.#clock, limitMs }, () => link.bye(bye));
        return;
      } catch (thrown) {
        const error = toLinkError(thrown);
        this.#options.observer?.callFailed('bye', error.code);
        const waitMs = pace.next(error);
        if (error.code !== 'unavailable' || this.#clock.now() + waitMs >= until) {
          this.#log.warn({ err: error }, 'the platform did not hear the bye');
          return;
        }
        await sleep(this.#clock, waitMs, this.#over.signal);
      }
    }
  }

  #fail(error: unknown): void {
    if (this.#state.name === 'failed' || this.#state.name === 'stopped') return;
    const reason = error instanceof Error ? error.message : String(error);
    this.#state = { name: 'failed', reason };
    this.#log.fatal({ err: error }, 'worker failed');
    this.#endLoops();
    this.#attempts.stopAll('lost');
    this.#hurry.abort();
    void this.#stopExecutor().then(() => this.#finish({ name: 'failed', reason }));
  }

  #endLoops(): void {
    this.#takeLoop.stop();
    this.#leaseKeeper.stop();
    this.#reporter.stop();
    this.#over.abort();
  }

  /** Never rejects. */
  #stopExecutor(): Promise<void> {
    this.#executorStopped ??= this.#executor.stop().catch((error: unknown) => {
      this.#log.error({ err: error }, 'the executor did not stop cleanly');
    });
    return this.#executorStopped;
  }

  #finish(state: WorkerState): void {
    this.#state = state;
    this.#resolveEnded(state);
  }

  /** Whether it settles within so many ms, and before the signal. */
  async #settles(work: Promise<void>, ms: number, signal?: AbortSignal): Promise<boolean> {
    const settled = new AbortController();
    const signals = signal ? [settled.signal, signal] : [settled.signal];
    const timer = sleep(this.#clock, ms, AbortSignal.any(signals)).then(() => false);
    try {
      return await Promise.race([work.then(() => true), timer]);
    } finally {
      settled.abort();
    }
  }
}
