// The worker's lifecycle, from setup through taking and running jobs to shutdown: its states, the order of its steps, and
// its health. worker-parts.ts makes the parts that do the work.
import type { Log } from '../base/log.ts';
import type { DescribedInput } from '../handler/loading/load.ts';
import { LinkError, type WorkerStart } from '../wire/link/worker-link.ts';
import { type Executor, HandlerNotLoadedError } from './execution/executor.ts';
import type { GpuFigures } from './gpu/gpu-accounts.ts';
import type { ShownParking } from './parking/worker-parking.ts';
import { drainWorker, type ShutdownResult } from './shutdown.ts';
import {
  type CompleteWorkerOptions,
  completeWorkerOptions,
  type WorkerOptions,
} from './worker-options.ts';
import { openParts, type WorkerParts } from './worker-parts.ts';

export type { ShutdownResult } from './shutdown.ts';
export type { WorkerOptions } from './worker-options.ts';

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
  readonly #parts: WorkerParts;
  /** Aborts the wait for running jobs. */
  readonly #stopWaiting = new AbortController();
  #state: WorkerState = { name: 'starting', step: 'setup' };
  #shutdown: Promise<ShutdownResult> | undefined;
  #recycleReason: string | undefined;
  #executorStopped: Promise<void> | undefined;
  #taking: Promise<void> = Promise.resolve();
  #resolveEnded: (state: WorkerState) => void = () => {};

  constructor(options: CompleteWorkerOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#executor = options.executor;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    this.#parts = openParts(options, {
      fail: (error) => this.#fail(error),
      drain: () => void this.#beginShutdown('platform'),
      recycle: (reason, pace) => (pace === 'now' ? this.#recycleNow(reason) : this.recycle(reason)),
      replace: () => this.#replaceWhenIdle(),
    });
  }

  get state(): WorkerState {
    return this.#state;
  }

  async start(): Promise<void> {
    try {
      const { describedInput, retry, timeoutMs } = await this.#executor.start();
      if (describedInput) this.#describeInput(describedInput);
      this.#parts.session.retry = retry && JSON.stringify(retry);
      if (timeoutMs !== undefined) this.#parts.attempts.limitTo(timeoutMs);
      if (this.#state.name !== 'starting') return;
      this.#state = { name: 'starting', step: 'hello' };
      await this.#parts.session.greet();
    } catch (error) {
      // The worker was stopped meanwhile, which aborted the setup or the hello.
      if (this.#state.name !== 'starting') return;
      this.#fail(error);
      throw error;
    }
    if (this.#state.name !== 'starting') return;
    this.#state = { name: 'ready' };
    this.#log.info(
      {
        workerId: this.#options.workerId,
        slots: this.#executor.slots,
        ...this.#parts.starts.last?.parts,
      },
      'worker ready',
    );
    this.#parts.memoryGuard?.start();
    this.#parts.reporter.resume();
    this.#parts.parker.findWay().catch((error: unknown) => this.#fail(error));
    this.#parts.leaseKeeper.run().catch((error: unknown) => this.#fail(error));
    this.#taking = this.#parts.takeLoop.run().catch((error: unknown) => this.#fail(error));
  }

  #describeInput(described: DescribedInput): void {
    // Without a schema, the platform forgets one that an earlier handler had.
    this.#parts.session.inputSchema = described.kind === 'schema' ? described.text : '';
    if (described.kind === 'schema') return;
    this.#log.debug({ reason: described.reason }, 'handler has no input schema');
  }

  drain(): Promise<ShutdownResult> {
    if (this.#state.name === 'draining' && this.#state.askedBy === 'platform') {
      const { clock, drainMs } = this.#options;
      const cancel = clock.after(drainMs, () => this.#stopWaiting.abort());
      void this.ended.then(cancel);
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
    this.#parts.gpus?.note(figures);
    this.#parts.parker.noteUsedBytes(figures.vramBytes);
  }

  /**
   * Called when a handler asked for a new process and no job runs. If the platform replaces workers,
   * the supervisor must not.
   */
  #replaceWhenIdle(): void {
    if (this.#parts.session.terms.replacesWorkers) void this.#beginShutdown('platform');
    else this.recycle(this.#describeNeed());
  }

  #describeNeed(): string {
    const { contextLoss } = this.#parts.attempts;
    if (contextLoss === undefined) return 'the handler asked for a new worker process';
    return `the process has lost its GPU context: ${contextLoss}`;
  }

  /** Like `recycle`, but does not wait for running jobs. */
  #recycleNow(reason: string): void {
    if (this.#state.name !== 'ready' && this.#state.name !== 'draining') return;
    this.#stopWaiting.abort();
    this.recycle(reason);
  }

  health(): WorkerHealth {
    return describeHealth({ options: this.#options, parts: this.#parts, state: this.#state });
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
      this.#log.info({ askedBy, running: this.#parts.attempts.active }, 'worker draining');
    }
    if (before === 'ready') result = await this.#drainJobs(askedBy);
    this.#parts.close();
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
    this.#parts.takeLoop.stop();
    const options = this.#options;
    const { attempts, reporter } = this.#parts;
    const limitMs = askedBy === 'platform' ? undefined : options.drainMs;
    // Suspended jobs return to the queue: a worker that ends does not take its GPU back.
    const jobsMs = this.#parts.parker.isSuspended ? 0 : limitMs;
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
    this.#parts.close();
    this.#parts.attempts.stopAll('lost');
    this.#stopWaiting.abort();
    void this.#stopExecutor().then(() => this.#finish({ ...failed, ...this.#describeRecycle() }));
  }

  #describeRecycle(): { recycle?: Recycle } {
    const { stuckThread } = this.#executor;
    const reason = stuckThread ?? this.#recycleReason;
    if (reason === undefined) return {};
    return { recycle: { reason, isStuck: stuckThread !== undefined } };
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

/**
 * `starting`: the handler's setup, then the first hello. `ready`: takes jobs. `draining`: takes
 * none, lets running ones end. `stopped`: has sent its bye. `failed`: cannot continue, and holds no
 * leases. `recycle`: a new process must replace this one.
 */
export type WorkerState =
  | { readonly name: 'starting'; readonly step: 'setup' | 'hello' }
  | { readonly name: 'ready' }
  | { readonly name: 'draining'; readonly askedBy: ShutdownCause }
  | { readonly name: 'stopped'; readonly result: ShutdownResult; readonly recycle?: Recycle }
  | {
      readonly name: 'failed';
      readonly reason: string;
      /** The platform refuses the worker's key, or has no such endpoint. */
      readonly isRefused?: boolean;
      readonly recycle?: Recycle;
    };

/** Who stops the worker. `itself`: it asks for a new process, or `recycle` was called. */
type ShutdownCause = 'caller' | 'platform' | 'itself';

interface Recycle {
  reason: string;
  /**
   * A thread does not end. The process must be killed with SIGKILL, because a normal exit waits for
   * the thread.
   */
  isStuck: boolean;
}

export interface WorkerHealth {
  /**
   * Setup is done, takes are answered, the executor can run jobs, no slot is stuck, leases are
   * renewed.
   */
  ready: boolean;
  /** Why it is not ready. */
  reason?: string;
  state: WorkerState['name'];
  slots: number;
  running: number;
  /** Attempts that have ended since the start. */
  ended: number;
  /** Running attempts that were stopped long ago and did not end. */
  stuck: number;
  /** When the platform last answered a take, Unix ms. */
  lastTakeAt?: number;
  /** When the platform last answered a renewal, Unix ms. */
  lastRenewAt?: number;
  /** State of the models of a worker that can be parked. */
  parking?: ShownParking;
  /** Where the time of the last start of the worker or of a model process went. */
  start?: WorkerStart;
  /** Number of unacknowledged reports. */
  outboxDepth: number;
  /** Error with which job after job failed; while it is set, the worker takes one job at a time. */
  sameError?: string;
  /** Why reports are only in memory although a disk outbox was requested. */
  outboxTrouble?: string;
}

interface ObservedWorker {
  options: CompleteWorkerOptions;
  parts: WorkerParts;
  state: WorkerState;
}

function describeHealth(worker: ObservedWorker): WorkerHealth {
  const { options, parts, state } = worker;
  const { executor, outbox } = options;
  const { attempts, breaker, leaseKeeper, parker, reporter, starts, takeLoop } = parts;
  const reason = findTrouble(worker);
  const { lastTakeAt } = takeLoop;
  const { lastRenewAt } = leaseKeeper;
  const { diskError: outboxTrouble } = outbox;
  const { sameError } = breaker;
  return {
    ready: reason === undefined,
    ...(reason !== undefined && { reason }),
    state: state.name,
    slots: state.name === 'starting' ? 0 : executor.slots,
    running: attempts.active,
    ended: attempts.ended,
    stuck: attempts.stuck,
    ...(lastTakeAt !== undefined && { lastTakeAt }),
    ...(lastRenewAt !== undefined && { lastRenewAt }),
    ...(parker.state !== undefined && { parking: parker.state }),
    ...(starts.last && { start: starts.last }),
    outboxDepth: reporter.depth,
    ...(sameError !== undefined && { sameError }),
    ...(outboxTrouble !== undefined && { outboxTrouble }),
  };
}

function findTrouble({ options, parts, state }: ObservedWorker): string | undefined {
  const { executor } = options;
  const { attempts, breaker, leaseKeeper, session, takeLoop } = parts;
  switch (state.name) {
    case 'starting':
      return session.trouble ?? `starting: waiting for the ${state.step}`;
    case 'draining':
    case 'stopped':
      return state.name;
    case 'failed':
      return `failed: ${state.reason}`;
    case 'ready':
      if (session.trouble) return session.trouble;
      if (executor.trouble) return executor.trouble;
      if (attempts.stuck > 0) return `stuck slots: ${attempts.stuck} of ${executor.slots}`;
      if (leaseKeeper.isOverdue) return 'lease renewals failed for too long';
      // A worker that is parked takes nothing because the platform wants it so.
      return breaker.trouble ?? (parts.parker.isHolding ? undefined : takeLoop.trouble);
  }
}
