// Runs a handler in the worker's own thread, for the harness and one-shot commands. It has no
// thread to kill. A handler that exceeds its grace period counts as ended, with `stopped:
// 'thread'`, and its further output is ignored. A handler that blocks the event loop blocks
// everything.
import { type Clock, Standstill, systemClock } from '../../base/clock.ts';
import {
  type AttemptLimits,
  type AttemptSink,
  type Invocation,
  invoke,
} from '../../handler/attempt/invoke.ts';
import { StopError } from '../../handler/attempt/stop.ts';
import { type BoundHandler, bindBatches } from '../../handler/batch/collector.ts';
import type { BatchEvent } from '../../handler/batch/settings.ts';
import type { SetupContext } from '../../handler/define.ts';
import {
  describeInput,
  type LoadedConfig,
  type LoadedHandler,
} from '../../handler/loading/load.ts';
import { captureConsole, createLinesLog, LogLines } from '../../handler/log-lines.ts';
import { describeThrown } from '../../handler/thrown.ts';
import { LIMITS } from '../../wire/job/job.ts';
import type { Device, Lease } from '../../wire/link/worker-link.ts';
import {
  countSlots,
  type Execution,
  type ExecutionSink,
  type Executor,
  type ExecutorOptions,
  HandlerNotLoadedError,
  ManagedExecution,
} from './executor.ts';

export interface InlineExecutorOptions extends ExecutorOptions {
  handler: LoadedHandler;
  devices: readonly Device[];
  /**
   * Concurrent jobs. Default: the handler's `config.concurrency`, else 1. A batch handler has as many
   * as its batches in flight can hold.
   */
  slots?: number;
  /** For timeouts, grace and execution times. Default: the machine's. */
  clock?: Clock;
  limits?: AttemptLimits;
  /** `captured`: the handler's console output goes to the job's log. Default `left`. */
  console?: 'captured' | 'left';
  /** Also receives all log lines as NDJSON. */
  logDestination?: { write(lines: Uint8Array): unknown };
}

interface Defaults {
  graceMs: number;
  windowBytes: number;
  clock: Clock;
  limits: AttemptLimits;
}

const DEFAULTS: Defaults = {
  graceMs: 2_000,
  windowBytes: 4 * 1_048_576,
  clock: systemClock,
  limits: LIMITS,
};
const DEFAULT_SETUP_TIMEOUT_MS = 600_000;
const CRASH = {
  code: 'thread_crashed',
  message: "the handler's thread died: it was killed",
} as const;

export class InlineExecutor implements Executor {
  readonly slots: number;
  readonly trouble = undefined;
  readonly stuckThread = undefined;
  readonly standstill: Standstill;
  #standing: (() => void)[] | undefined;
  readonly #options: InlineExecutorOptions & Defaults;
  readonly #setupLines: LogLines;
  readonly #setupAbort = new AbortController();
  readonly #bound: BoundHandler;
  readonly #waiting = new Set<ManagedExecution>();
  readonly #running = new Map<ManagedExecution, Invocation>();
  readonly #listeners: (() => void)[] = [];
  readonly #batchListeners: ((event: BatchEvent) => void)[] = [];
  #nextNumber = 1;
  #state: 'starting' | 'ready' | 'stopped' = 'starting';

  constructor(options: InlineExecutorOptions) {
    this.#options = { ...DEFAULTS, ...options };
    this.standstill = new Standstill(() => this.#options.clock.now());
    const { config } = options.handler;
    const slots = options.slots ?? config.concurrency ?? 1;
    this.slots = config.batch ? countSlots(config, undefined) : slots;
    const lines = new LogLines({}, (written) => this.#options.logDestination?.write(written));
    this.#setupLines = lines;
    this.#bound = bindBatches(options.handler, {
      devices: options.devices,
      clock: this.#options.clock,
      createLog: (bindings) => createLinesLog(lines, bindings),
      lines,
      onChange: () => this.#notify(),
      onEvent: (event) => {
        for (const listener of this.#batchListeners) listener(event);
      },
    });
  }

  get free(): number {
    if (this.#state !== 'ready') return 0;
    const jobs = this.#running.size + this.#waiting.size;
    return this.#bound.batches?.countFree(jobs) ?? Math.max(0, this.slots - jobs);
  }

  get freeForMs(): number | undefined {
    return this.#bound.batches?.fillMs;
  }

  /** Jobs of a batch handler that wait for their batch to start. */
  get waitingForBatch(): number {
    return this.#bound.batches?.waiting ?? 0;
  }

  /** The jobs that run, or begin meanwhile, stand still until the returned function is called. */
  standStill(): () => void {
    this.standstill.begin();
    this.#standing = [...this.#running.values()].map((running) => running.standStill());
    return () => {
      this.standstill.end();
      for (const goOn of this.#standing ?? []) goOn();
      this.#standing = undefined;
    };
  }

  /** Starts no batch until the returned function is called. */
  holdBatches(): () => void {
    return this.#bound.batches?.hold() ?? (() => undefined);
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  onBatch(listener: (event: BatchEvent) => void): void {
    this.#batchListeners.push(listener);
  }

  async start(): Promise<LoadedConfig> {
    const { handler } = this.#options;
    if (this.#options.console === 'captured') captureConsole();
    try {
      await this.#limitSetup(handler.setup?.(this.#createSetupContext()));
    } catch (error) {
      if (error instanceof HandlerNotLoadedError) throw error;
      const { message, stack } = describeThrown(error);
      throw new HandlerNotLoadedError(`setup() threw: ${stack ?? message}`, { cause: error });
    } finally {
      this.#setupLines.flush();
    }
    this.#state = 'ready';
    this.#dispatch();
    return { ...handler.config, describedInput: describeInput(handler) };
  }

  execute(lease: Lease, timeoutMs: number, sink: ExecutionSink): Execution {
    const { graceMs, clock } = this.#options;
    const onAbandoned = (abandoned: ManagedExecution) => this.#waiting.delete(abandoned);
    const { standstill } = this;
    const terms = { lease, timeoutMs, graceMs, sink, clock, standstill, onAbandoned };
    const job = new ManagedExecution(terms);
    this.#waiting.add(job);
    if (this.#state === 'stopped') job.stop('shutdown');
    else this.#dispatch();
    return job;
  }

  /**
   * Simulates the death of the thread in the code of that job: running handlers are stopped and
   * ignored. Returns false if the job does not run.
   */
  crash(jobId: string): boolean {
    const running = [...this.#running];
    if (!running.some(([job]) => job.lease.jobId === jobId)) return false;
    for (const [job, attempt] of running) {
      if (job.stopReason !== undefined) job.settleStopped('thread');
      else if (job.lease.jobId === jobId) job.settleCrashed(CRASH);
      else job.settleReleased('neighbour');
      attempt.stop('lost');
    }
    this.#bound.batches?.abandonStopped();
    return true;
  }

  async stop(): Promise<void> {
    const wasReady = this.#state === 'ready';
    this.#state = 'stopped';
    this.#setupAbort.abort(new StopError('shutdown'));
    for (const job of [...this.#waiting, ...this.#running.keys()]) job.stop('shutdown');
    await Promise.all([...this.#running.keys()].map((job) => job.end));
    if (!wasReady) return;
    try {
      await this.#options.handler.teardown?.();
    } catch (error) {
      const { message, stack } = describeThrown(error);
      this.#setupLines.writeText('error', `teardown threw: ${stack ?? message}`);
    }
    this.#setupLines.flush();
  }

  #dispatch(): void {
    if (this.#state === 'starting') return;
    for (const job of this.#waiting) {
      if (this.#running.size >= this.slots) break;
      this.#waiting.delete(job);
      this.#run(job);
    }
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  #run(job: ManagedExecution): void {
    const { devices, windowBytes, limits, clock } = this.#options;
    const { jobId, attempt, input, memoBytes, traceparent, tracestate } = job.lease;
    const { s3Config, schedule, solo } = job.lease;
    const { timeoutMs } = job;
    const number = this.#nextNumber++;
    const trace = { traceparent, tracestate };
    const lent = { timeoutMs, devices, windowBytes, limits, clock };
    const given = { input, memoBytes, s3Config, schedule, solo };
    const call = { number, jobId, attempt, ...given, ...trace, ...lent };
    const running = invoke(this.#bound.handler, call, this.#createSink(job));
    this.#running.set(job, running);
    this.#standing?.push(running.standStill());
    job.begin({
      stop: (reason, detail) => running.stop(reason, detail),
      grant: (bytes) => running.grant(bytes),
      kept: (count) => running.kept(count),
      // This timer fired, so no code of the handler is running.
      kill: () => {
        job.settleStopped('thread', { state: 'waiting' });
        this.#bound.batches?.abandonStopped();
      },
    });
    void running.end.then((end) => job.settle(end));
    void job.end.then(() => {
      this.#running.delete(job);
      this.#dispatch();
    });
  }

  #createSink(job: ManagedExecution): AttemptSink {
    return {
      chunks: (batch) => job.takeChunks(batch),
      progress: (value) => job.sink?.progress(value),
      pause: (forMs, limit) => job.sink?.pause?.(forMs, limit),
      ...(job.keepsSteps && { step: (name, result) => job.sink?.step?.(name, result) }),
      held: (isHeld) => job.takeHold(isHeld),
      log: (lines, dropped) => {
        this.#options.logDestination?.write(lines);
        job.sink?.log(lines, dropped);
      },
    };
  }

  #createSetupContext(): SetupContext {
    const lines = this.#setupLines;
    return {
      signal: this.#setupAbort.signal,
      devices: this.#options.devices,
      get log() {
        return createLinesLog(lines, {});
      },
    };
  }

  async #limitSetup(setup: unknown): Promise<void> {
    const { clock, handler } = this.#options;
    const ms = handler.config.setupTimeoutMs ?? DEFAULT_SETUP_TIMEOUT_MS;
    let cancel: () => void = () => undefined;
    const tooLate = new Promise<never>((_, reject) => {
      const error = new HandlerNotLoadedError(`setup took longer than ${ms} ms`);
      cancel = clock.after(ms, () => reject(error));
    });
    await Promise.race([setup, tooLate]).finally(() => cancel());
  }
}
