// The interface between the worker and the code that runs handlers. One implementation uses threads;
// the other runs handlers in the worker's own thread, for the harness.
import type { StopReason } from '../../handler/attempt/stop.ts';
import type { BatchEvent } from '../../handler/batch/settings.ts';
import type { LoadedConfig } from '../../handler/loading/load.ts';
import type { AttemptUsage } from '../../wire/job/attempt.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';

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
  /** NDJSON. `dropped`: number of lines that were dropped before these. */
  log(lines: Uint8Array, dropped: number): void;
  /** Called when the attempt begins or stops waiting for a model process to start. */
  held?(isHeld: boolean): void;
}

/** How an attempt ended, and the JSON bytes of its output if that is not in chunks. */
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

export interface Executor {
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
