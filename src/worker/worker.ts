// The worker's lifecycle, from setup through taking and running jobs to shutdown. It owns the state
// and the order of steps; the loops of other files do the work.
import { sleep } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { DescribedInput } from '../handler/loading/load.ts';
import { LinkError } from '../wire/link/worker-link.ts';
import { Attempts } from './attempts.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import { type Executor, HandlerNotLoadedError } from './execution/executor.ts';
import { MemoryGuard } from './execution/memory-guard.ts';
import { GpuAccounts } from './gpu/gpu-accounts.ts';
import type { GpuFigures } from './gpu/usage-meter.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import { Reporter } from './reports/reporter.ts';
import { Session } from './session.ts';
import { drainWorker, type ShutdownResult } from './shutdown.ts';
import { TakeLoop } from './take-loop.ts';
import {
  type CompleteWorkerOptions,
  completeWorkerOptions,
  type WorkerOptions,
} from './worker-options.ts';
import {
  describeHealth,
  type Recycle,
  type ShutdownCause,
  type WorkerHealth,
  type WorkerState,
} from './worker-state.ts';

export type { ShutdownResult } from './shutdown.ts';
export type { WorkerOptions } from './worker-options.ts';
export type { WorkerHealth, WorkerState } from './worker-state.ts';

export interface Worker {
  /**
   * Resolves when the worker takes jobs, or when it was stopped first. If the platform is
   * unavailable, waits for it.
   * @throws HandlerNotLoadedError, any other error of the executor's start, and LinkError
   * `stale_incarnation` or `invalid`; the state is `failed` then
   */
  start(): Promise<void>;
  /**
   * Lets running jobs end for up to `drainMs`, then stops. A second call returns the same promise.
   * After a drain by the platform, which has no time limit, `drainMs` counts from this call.
   */
  drain(): Promise<ShutdownResult>;
  /** Stops without waiting for running jobs; also ends the wait of a drain. */
  stop(): Promise<ShutdownResult>;
  /**
   * Like `drain`, but asks for a new process afterwards. Has no effect if the worker is already
   * stopping.
   */
  recycle(reason: string): void;
  /** Counts these figures of the worker's GPUs for the attempts that run. */
  noteGpuFigures(figures: GpuFigures): void;
  /** Resolves with the state `stopped` or `failed`, whatever the cause. */
  readonly ended: Promise<WorkerState>;
  readonly state: WorkerState;
  health(): WorkerHealth;
}

/** Creates a worker. Call `start` once. */
export function createWorker(options: WorkerOptions): Worker {
  return new QueueWorker(completeWorkerOptions(options));
}

class QueueWorker implements Worker {
  readonly ended: Promise<WorkerState>;
  readonly #options: CompleteWorkerOptions;
  readonly #log: Log;
  readonly #executor: Executor;
  readonly #session: Session;
  readonly #reporter: Reporter;
  readonly #attempts: Attempts;
  readonly #takeLoop: TakeLoop;
  readonly #leaseKeeper: LeaseKeeper;
  readonly #memoryGuard: MemoryGuard | undefined;
  /** Undefined without a GPU. */
  readonly #gpus: GpuAccounts | undefined;
  readonly #breaker: CircuitBreaker;
  /** Aborts the session's waits. */
  readonly #sessionEnd = new AbortController();
  /** Aborts the wait for running jobs. */
  readonly #stopWaiting = new AbortController();
  #state: WorkerState = { name: 'starting', step: 'setup' };
  #shutdown: Promise<ShutdownResult> | undefined;
  #recycleReason: string | undefined;
  #executorStopped: Promise<void> | undefined;
  #taking: Promise<void> = Promise.resolve();
  #resolveEnded: (state: WorkerState) => void = () => {};

  constructor(options: CompleteWorkerOptions) {
    const { log, executor } = options;
    this.#options = options;
    this.#log = log;
    this.#executor = executor;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    const session = new Session(options, this.#sessionEnd.signal);
    const onFatal = (error: unknown) => this.#fail(error);
    const onAnswered = () => this.#takeLoop.wake();
    const reporter = new Reporter({ options, session, onFatal, onAnswered });
    this.#gpus = this.#createGpuAccounts();
    this.#breaker = new CircuitBreaker({
      clock: options.clock,
      log,
      failures: options.breakAfter,
      state: options.breakerState,
      onChange: (state) => options.observer?.breakerChanged(state),
      onRelief: () => this.#takeLoop.wake(),
      onRecycle: (reason) => this.recycle(reason),
    });
    const breaker = this.#breaker;
    const attempts = new Attempts({ options, reporter, breaker, gpus: this.#gpus });
    this.#session = session;
    this.#reporter = reporter;
    this.#attempts = attempts;
    const isPaused = () =>
      attempts.mustRecycle ||
      (this.#memoryGuard?.isHigh ?? false) ||
      (this.#gpus?.isHolding ?? false);
    this.#takeLoop = new TakeLoop({ options, session, attempts, breaker, reporter, isPaused });
    this.#memoryGuard = this.#createMemoryGuard();
    const onDrain = () => {
      void this.#beginShutdown('platform');
    };
    this.#leaseKeeper = new LeaseKeeper({ options, session, attempts, onDrain });
    attempts.onChange(() => {
      this.#takeLoop.wake();
      if (attempts.mustRecycle && attempts.active === 0) this.#replaceWhenIdle();
    });
    executor.onBatch((event) => options.observer?.batchChanged(event));
    executor.onChange(() => {
      this.#takeLoop.wake();
      if (executor.stuckThread !== undefined) this.#recycleNow(executor.stuckThread);
    });
  }

  get state(): WorkerState {
    return this.#state;
  }

  async start(): Promise<void> {
    try {
      const { describedInput, timeoutMs } = await this.#executor.start();
      if (describedInput) this.#describeInput(describedInput);
      if (timeoutMs !== undefined) this.#attempts.limitTo(timeoutMs);
      if (this.#state.name !== 'starting') return;
      this.#state = { name: 'starting', step: 'hello' };
      await this.#session.greet();
    } catch (error) {
      // The worker was stopped meanwhile, which aborted the setup or the hello.
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
    this.#memoryGuard?.start();
    this.#reporter.resume();
    this.#leaseKeeper.run().catch((error: unknown) => this.#fail(error));
    this.#taking = this.#takeLoop.run().catch((error: unknown) => this.#fail(error));
  }

  #describeInput(described: DescribedInput): void {
    // Without a schema, the platform forgets one that an earlier handler had.
    this.#session.inputSchema = described.kind === 'schema' ? described.text : '';
    if (described.kind === 'schema') return;
    this.#log.debug({ reason: described.reason }, 'handler has no input schema');
  }

  drain(): Promise<ShutdownResult> {
    if (this.#state.name === 'draining' && this.#state.askedBy === 'platform') {
      const { clock, drainMs } = this.#options;
      void sleep(clock, drainMs, this.#sessionEnd.signal).then(() => this.#stopWaiting.abort());
    }
    return this.#beginShutdown('caller');
  }

  stop(): Promise<ShutdownResult> {
    this.#stopWaiting.abort();
    return this.#beginShutdown('caller');
  }

  recycle(reason: string): void {
    if (this.#shutdown || this.#state.name === 'failed') return;
    this.#recycleReason = reason;
    this.#log.info({ reason }, 'a new process takes over');
    void this.#beginShutdown('itself');
  }

  noteGpuFigures(figures: GpuFigures): void {
    this.#gpus?.note(figures);
  }

  /**
   * Called when a handler asked for a new process and no job runs. If the platform replaces workers,
   * the supervisor must not.
   */
  #replaceWhenIdle(): void {
    if (this.#session.terms.replacesWorkers) void this.#beginShutdown('platform');
    else this.recycle(this.#describeNeed());
  }

  #describeNeed(): string {
    const { contextLoss } = this.#attempts;
    if (contextLoss === undefined) return 'the handler asked for a new worker process';
    return `the process has lost its GPU context: ${contextLoss}`;
  }

  /** Like `recycle`, but does not wait for running jobs. */
  #recycleNow(reason: string): void {
    if (this.#state.name !== 'ready' && this.#state.name !== 'draining') return;
    this.#stopWaiting.abort();
    this.recycle(reason);
  }

  #createGpuAccounts(): GpuAccounts | undefined {
    const { clock, devices } = this.#options;
    const count = devices.filter(({ kind }) => kind === 'gpu').length;
    if (count === 0) return undefined;
    return new GpuAccounts({
      devices: count,
      clock,
      isIdle: () => this.#attempts.active === 0,
      onRelief: () => this.#takeLoop.wake(),
      onRecycle: (reason) => this.recycle(reason),
    });
  }

  #createMemoryGuard(): MemoryGuard | undefined {
    const { clock, log, memoryLimitBytes: limitBytes, readRssBytes } = this.#options;
    if (limitBytes === undefined) return undefined;
    const onRelief = () => this.#takeLoop.wake();
    const onRecycle = (reason: string, pace: 'now' | 'idle') =>
      pace === 'now' ? this.#recycleNow(reason) : this.recycle(reason);
    const attempts = this.#attempts;
    return new MemoryGuard({ clock, log, attempts, limitBytes, readRssBytes, onRelief, onRecycle });
  }

  health(): WorkerHealth {
    return describeHealth({
      state: this.#state,
      attempts: this.#attempts,
      breaker: this.#breaker,
      executor: this.#executor,
      leaseKeeper: this.#leaseKeeper,
      outbox: this.#options.outbox,
      reporter: this.#reporter,
      session: this.#session,
      takeLoop: this.#takeLoop,
    });
  }

  #beginShutdown(askedBy: ShutdownCause): Promise<ShutdownResult> {
    this.#shutdown ??= this.#shutDown(askedBy);
    return this.#shutdown;
  }

  async #shutDown(askedBy: ShutdownCause): Promise<ShutdownResult> {
    const before = this.#state.name;
    const undelivered = this.#options.outbox.undelivered();
    const delivered = before !== 'failed' && undelivered.length === 0;
    let result: ShutdownResult = { delivered, undelivered, abandoned: 0 };
    if (before !== 'failed') {
      this.#state = { name: 'draining', askedBy };
      this.#log.info({ askedBy, running: this.#attempts.active }, 'worker draining');
    }
    if (before === 'ready') result = await this.#drainJobs(askedBy);
    this.#endLoops();
    await this.#stopExecutor();
    if (this.#state.name === 'draining') {
      this.#log.info({ result }, 'worker stopped');
      this.#finish({ name: 'stopped', result, ...this.#describeRecycle() });
    }
    return result;
  }

  /**
   * A drain by the platform has no time limit: the platform limits each job, and nothing else waits
   * for this machine.
   */
  #drainJobs(askedBy: ShutdownCause): Promise<ShutdownResult> {
    this.#takeLoop.stop();
    const [options, attempts, reporter] = [this.#options, this.#attempts, this.#reporter];
    const jobsMs = askedBy === 'platform' ? undefined : options.drainMs;
    const stopWaiting = this.#stopWaiting.signal;
    return drainWorker({ options, jobsMs, attempts, reporter, taking: this.#taking, stopWaiting });
  }

  #fail(error: unknown): void {
    if (this.#state.name === 'failed' || this.#state.name === 'stopped') return;
    const reason = error instanceof Error ? error.message : String(error);
    const isRefused = error instanceof LinkError && error.code === 'unauthorized';
    const failed = { name: 'failed', reason, ...(isRefused && { isRefused }) } as const;
    this.#state = failed;
    // The messages of these errors say all; a setup's has its stack.
    const isExplained = error instanceof LinkError || error instanceof HandlerNotLoadedError;
    this.#log.fatal(isExplained ? { reason } : { err: error }, 'worker failed');
    this.#endLoops();
    this.#attempts.stopAll('lost');
    this.#stopWaiting.abort();
    void this.#stopExecutor().then(() => this.#finish({ ...failed, ...this.#describeRecycle() }));
  }

  #describeRecycle(): { recycle?: Recycle } {
    const { stuckThread } = this.#executor;
    const reason = stuckThread ?? this.#recycleReason;
    if (reason === undefined) return {};
    return { recycle: { reason, isStuck: stuckThread !== undefined } };
  }

  #endLoops(): void {
    this.#takeLoop.stop();
    this.#leaseKeeper.stop();
    this.#reporter.stop();
    this.#memoryGuard?.stop();
    this.#breaker.stop();
    this.#sessionEnd.abort();
  }

  /** Never rejects. */
  #stopExecutor(): Promise<void> {
    this.#executorStopped ??= this.#executor.stop().catch((error: unknown) => {
      this.#log.error({ err: error }, 'stopping the executor failed');
    });
    return this.#executorStopped;
  }

  #finish(state: WorkerState): void {
    this.#state = state;
    this.#resolveEnded(state);
  }
}
