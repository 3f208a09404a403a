// The interface between the worker and the code that runs handlers, and the attempt that both of its implementations
// share. One uses threads; the other runs handlers in the worker's own thread, for the harness.

import { type Clock, callAfterRun, type Standstill } from '../../base/clock.ts';
import type { ModelStart } from '../../base/process/model-starts.ts';
import type { ParkWay } from '../../base/process/parkables.ts';
import { type EndHold, Holds } from '../../handler/attempt/hold.ts';
import { ChunkHistory, createStoppedOutcome, type StopReason } from '../../handler/attempt/stop.ts';
import type { BatchEvent } from '../../handler/batch/settings.ts';
import type { LoadedConfig } from '../../handler/loading/load.ts';
import { findContextLoss } from '../../handler/thrown.ts';
import type { AttemptError, AttemptUsage, StopLevel } from '../../wire/job/attempt.ts';
import type { ErrorCode } from '../../wire/job/job.ts';
import type { Lease, Outcome, ReleaseReason } from '../../wire/link/worker-link.ts';
import type { StuckThread } from './thread-end.ts';

export type { StopReason };

/** Chunks of one message: their JSON joined by commas, and the size of each. */
export interface ChunkMessage {
  sizes: number[];
  bytes: Uint8Array;
}

/** Receives what a running attempt reports before its end, in order. */
export interface ExecutionSink {
  chunks(message: ChunkMessage): void;
  /** JSON bytes. */
  progress(value: Uint8Array): void;
  /** The job's group is to be paused so long, ms. Absent: pauses have no effect. */
  pause?(forMs: number, limit?: string): void;
  /** The result of a step, JSON; `Execution.kept` acknowledges it. Absent: the platform keeps none. */
  step?(name: string, result: Uint8Array): void;
  /** NDJSON. `dropped`: number of lines that were dropped before these. */
  log(lines: Uint8Array, dropped: number): void;
  /** Called when the attempt begins or stops waiting for a model process to start. */
  held?(isHeld: boolean): void;
}

/** How an attempt ended, and the JSON bytes of its output if that is not in chunks, or of what it waits for. */
export interface ExecutionEnd {
  outcome: Outcome;
  output: Uint8Array | undefined;
  /** The handler asks for a new process: this worker must run no other job. */
  recycle?: boolean | undefined;
  /** Words of the error that show a lost device context: this process can run nothing else. */
  contextLoss?: string | undefined;
  /** What the attempt used; the worker adds it. */
  usage?: AttemptUsage | undefined;
  /** How long it waited for the start of a model process, ms; the worker adds it. */
  waitedMs?: number;
}

export interface Execution {
  /** Never rejects. When it resolves, the sink has received all output. */
  readonly end: Promise<ExecutionEnd>;
  /** The first reason counts; further calls have no effect. `detail`: more about the reason. */
  stop(reason: StopReason, detail?: string): void;
  /** Reports that this many bytes of chunks were delivered, so the generator may continue. */
  grant(bytes: number): void;
  /** The platform has stored so many further results of steps. */
  kept(count: number): void;
}

/**
 * `load`: the module itself, where a retry would not help; `usage`: an option of the worker does not fit the handler;
 * `check`: a registered check failed; `setup`: the handler's setup threw, took too long or was aborted.
 */
export type StartStage = 'load' | 'usage' | 'check' | 'setup';

interface StartFailure {
  stage?: StartStage;
  check?: string | undefined;
  cause?: unknown;
}

/** The handler's module could not be loaded or its setup failed: no job can run. */
export class HandlerNotLoadedError extends Error {
  override readonly name = 'HandlerNotLoadedError';
  readonly stage: StartStage;
  /** Name of the check that failed. */
  readonly check: string | undefined;

  constructor(message: string, options: StartFailure = {}) {
    super(message, { cause: options.cause });
    this.check = options.check;
    this.stage = options.stage ?? 'setup';
  }
}

export interface ExecutorOptions {
  /**
   * Time after the signal and `generator.return()` until the thread is killed, ms. Default 2,000.
   */
  graceMs?: number;
  /** Undelivered bytes of chunks at which an attempt's generator is paused. Default 4 MB. */
  windowBytes?: number;
}

/** The device has no room for a model that is to wake up. It is parked as before. */
export class NoDeviceRoomError extends Error {
  override readonly name = 'NoDeviceRoomError';
}

/** Moves the models of all threads to the host's memory and back. No job may run meanwhile. */
export interface ExecutorParking {
  /** Undefined if there is no model process, or one cannot be parked. Asked after the start. */
  findWay(): Promise<ParkWay | undefined>;
  /**
   * Never fails: ends what cannot be parked, without a successor until `wakeUp`.
   * @returns device memory that came free, 0 if all are ended; undefined if hooks have parked a model and do not tell its size
   */
  letGo(how: 'parked' | 'ended'): Promise<number | undefined>;
  /** Whether `suspend` may work. Asked after the start. */
  canSuspend(): Promise<boolean>;
  /**
   * Suspends the models in the middle of the jobs, which stand still until `wakeUp`. Call that also if some models were not
   * suspended: `failure` says why.
   */
  suspend(): Promise<{ bytes: number; failure?: string | undefined }>;
  /**
   * `together` is as fast as the device copies, and needs room that somebody has checked for all models; `in turn`: each model checks
   * its own before it moves. @throws NoDeviceRoomError; then all are parked
   */
  wakeUp(how: 'together' | 'in turn'): Promise<void>;
}

/** A start of the executor, or of a model process that its threads have started since. Parts in ms. */
export type ExecutorStart =
  | {
      of: 'worker';
      /** When the first code of a thread ran, Unix ms. */
      upAt: number;
      /** Parts after that; the interpreter is that of a model process. */
      interpreterMs: number;
      importMs: number;
      setupMs: number;
    }
  | ({ of: 'model' } & ModelStart);

export interface Executor {
  /** Undefined: its models cannot be parked. */
  readonly parking?: ExecutorParking | undefined;
  /** Counts the time in which all jobs stand still. Undefined: they never do. */
  readonly standstill?: Standstill | undefined;
  /** Loads the module and runs its setup wherever jobs will run. @throws HandlerNotLoadedError */
  start(): Promise<LoadedConfig>;
  /** Number of jobs that can run at a time if no thread is down. Known after `start`. */
  readonly slots: number;
  /** Free slots in running threads. */
  readonly free: number;
  /**
   * After this time an incomplete batch starts and takes its free slots with it, ms: a take must not
   * wait longer. Undefined if the free slots stay free.
   */
  readonly freeForMs: number | undefined;
  /** Why it cannot run jobs at the moment; undefined if it can. */
  readonly trouble: string | undefined;
  /** Set if a thread was killed but does not end: the process must then be ended with SIGKILL. */
  readonly stuckThread: string | undefined;
  /** The listener is called when `free` has grown, or `trouble` or `stuckThread` has changed. */
  onChange(listener: () => void): void;
  /** The listener is called when a start is over. Absent: it measures none. */
  onStarted?(listener: (start: ExecutorStart) => void): void;
  /** The listener is called for each batch of a batch handler. */
  onBatch(listener: (event: BatchEvent) => void): void;
  /**
   * Starts an attempt; waits for a slot if none is free, because a thread may have died meanwhile.
   */
  execute(lease: Lease, timeoutMs: number, sink: ExecutionSink): Execution;
  /** Runs teardown and ends all threads; running attempts are stopped with `shutdown`. */
  stop(): Promise<void>;
}

/**
 * Concurrent jobs in one thread. `concurrency` overrides the handler's config, except for a batch
 * handler: its batches in flight decide.
 */
export function countSlots(config: LoadedConfig, concurrency: number | undefined): number {
  if (config.batch) return config.batch.maxSize * config.batch.maxInFlight;
  if (config.isolation === 'job') return 1;
  return concurrency ?? config.concurrency ?? 1;
}

/** Carries out the commands of an execution where its handler runs. */
interface JobCarrier {
  stop(reason: StopReason, detail: string | undefined): void;
  grant(bytes: number): void;
  kept(count: number): void;
  /** The grace period is over and the handler has not ended. */
  kill(): void;
}

interface ManagedExecutionOptions {
  lease: Lease;
  timeoutMs: number;
  graceMs: number;
  sink: ExecutionSink;
  clock: Clock;
  /** Default: the attempt never stands still. */
  standstill?: Standstill | undefined;
  /** The attempt was stopped before it had a slot; its end is settled. */
  onAbandoned: (execution: ManagedExecution) => void;
}

export class ManagedExecution implements Execution {
  readonly end: Promise<ExecutionEnd>;
  readonly lease: Lease;
  readonly timeoutMs: number;
  readonly #options: ManagedExecutionOptions;
  #resolve: (end: ExecutionEnd) => void = () => undefined;
  #carrier: JobCarrier | undefined;
  #startedAt = 0;
  readonly #history: ChunkHistory;
  readonly #holds: Holds;
  #endHold: EndHold | undefined;
  #stopReason: StopReason | undefined;
  #stopDetail: string | undefined;
  #cancelTimer: (() => void) | undefined;
  #isSettled = false;

  constructor(options: ManagedExecutionOptions) {
    this.#options = options;
    this.lease = options.lease;
    this.timeoutMs = options.timeoutMs;
    const now = () => options.clock.now();
    this.#history = new ChunkHistory(now);
    this.#holds = new Holds(now, (isHeld) => this.sink?.held?.(isHeld));
    this.end = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  get stopReason(): StopReason | undefined {
    return this.#stopReason;
  }

  get keepsSteps(): boolean {
    return this.#options.sink.step !== undefined;
  }

  /** Receives the attempt's output until it is settled. */
  get sink(): ExecutionSink | undefined {
    return this.#isSettled ? undefined : this.#options.sink;
  }

  takeChunks(message: ChunkMessage): void {
    this.#history.add(message.sizes.length);
    this.sink?.chunks(message);
  }

  /** The attempt begins or stops waiting for a model process to start. */
  takeHold(isHeld: boolean): void {
    this.#endHold?.();
    this.#endHold = isHeld ? this.#holds.begin() : undefined;
  }

  /** The attempt has a slot: its timeout begins. */
  begin(carrier: JobCarrier): void {
    const { clock, standstill = { ms: 0 }, timeoutMs } = this.#options;
    this.#carrier = carrier;
    this.#startedAt = clock.now();
    this.#cancelTimer = callAfterRun(clock, timeoutMs, standstill, () => this.stop('timeout'));
  }

  stop(reason: StopReason, detail?: string): void {
    if (this.#isSettled || this.#stopReason) return;
    this.#stopReason = reason;
    this.#stopDetail = detail;
    if (!this.#carrier) {
      this.#settleUnstarted(reason);
      this.#options.onAbandoned(this);
      return;
    }
    const { clock, graceMs } = this.#options;
    this.#cancelTimer?.();
    this.#cancelTimer = clock.after(graceMs, () => this.#carrier?.kill());
    this.#carrier.stop(reason, detail);
  }

  grant(bytes: number): void {
    if (!this.#isSettled) this.#carrier?.grant(bytes);
  }

  kept(count: number): void {
    if (!this.#isSettled) this.#carrier?.kept(count);
  }

  /** The first end counts; later ones are ignored. */
  settle(end: ExecutionEnd): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#cancelTimer?.();
    this.#resolve(end);
  }

  /** The thread was killed, or died by itself after the stop. */
  settleStopped(level: StopLevel, stuck?: StuckThread): void {
    const outcome = createStoppedOutcome({
      reason: this.#stopReason ?? 'shutdown',
      detail: this.#stopDetail,
      level,
      executionMs: this.#measureMs(),
      timeoutMs: this.timeoutMs,
      stuck: stuck && { ...stuck, ...this.#history.describe() },
    });
    this.settle({ outcome, output: undefined });
  }

  /** The attempt took its thread down. */
  settleCrashed(error: AttemptError): void {
    const executionMs = this.#measureMs();
    const { message, stack = '', type = '' } = error;
    const contextLoss = findContextLoss(`${type}: ${message}\n${stack}`);
    const named =
      contextLoss === undefined ? error : { ...error, code: 'gpu_context_lost' as const };
    const outcome = { kind: 'failed', executionMs, error: named, retry: 'default' } as const;
    this.settle({ outcome, output: undefined, contextLoss });
  }

  /** The attempt never ran, or is not known to be at fault. */
  settleReleased(reason: Exclude<ReleaseReason, 'drain'>): void {
    this.settle({ outcome: { kind: 'released', reason }, output: undefined });
  }

  /** It never ran, so it cannot have timed out: another worker may have a free slot. */
  #settleUnstarted(reason: StopReason): void {
    if (reason === 'cancelled' || reason === 'lost') this.settleStopped('signal');
    else this.settleReleased('not_started');
  }

  /** Without the time in which it waited for a model process. */
  #measureMs(): number {
    if (!this.#carrier) return 0;
    const elapsedMs = this.#options.clock.now() - this.#startedAt;
    return Math.max(0, Math.round(elapsedMs - this.#holds.ms));
  }
}

/** The failure is the handler's own, not a consequence of a lost device context. */
const HANDLER_FAULT: ReadonlySet<ErrorCode> = new Set([
  'input_invalid',
  'output_invalid',
  'output_too_large',
]);

/** The end of an attempt in a process whose context on a device another attempt had lost before. */
export function endWithoutContext(end: ExecutionEnd): ExecutionEnd {
  const { outcome } = end;
  return outcome.kind === 'failed' && !HANDLER_FAULT.has(outcome.error.code)
    ? { outcome: { kind: 'released', reason: 'neighbour' }, output: undefined }
    : end;
}

/** The end of an attempt. Words of its input do not count as the loss of a context. */
export function readContextLoss(end: ExecutionEnd, { input }: Lease): ExecutionEnd {
  const { contextLoss, outcome } = end;
  if (contextLoss === undefined || !Buffer.from(input).includes(contextLoss)) return end;
  const rest = { ...end, contextLoss: undefined };
  if (outcome.kind !== 'failed') return rest;
  return { ...rest, outcome: { ...outcome, error: { ...outcome.error, code: 'handler_error' } } };
}
