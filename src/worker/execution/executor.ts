// The seam between the worker and what runs handlers: threads, or (for the harness) the same thread.
import type { HandlerConfig } from '../../handler/define.ts';
import type { StopReason } from '../../handler/stop.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';

export type { StopReason };

/** Chunks that travel together: their JSON joined by commas, and the bytes of each. */
export interface ChunkMessage {
  sizes: number[];
  bytes: Uint8Array;
}

/** What a running attempt says before it ends; in its order. */
export interface ExecutionSink {
  chunks(message: ChunkMessage): void;
  /** JSON bytes. */
  progress(value: Uint8Array): void;
  /** NDJSON. `dropped` lines before these were left out, because there were too many. */
  log(lines: Uint8Array, dropped: number): void;
}

/** How an attempt ended, and its output's JSON bytes if it has one beside its chunks. */
export interface ExecutionEnd {
  outcome: Outcome;
  output: Uint8Array | undefined;
  /** The handler wants no other job to run in this worker. */
  isWorn?: boolean | undefined;
}

export interface Execution {
  /** Never rejects. Everything given to the sink was given before. */
  readonly end: Promise<ExecutionEnd>;
  /** The first reason counts; asking again changes nothing. `detail`: what else is known of it. */
  stop(reason: StopReason, detail?: string): void;
  /** So many bytes of chunks have been delivered: the generator may go on producing. */
  grant(bytes: number): void;
}

/**
 * `load`: the module itself, which another try would not change; `check`: one that it registered
 * failed; `setup`: what it does to get ready threw, took too long or was broken off.
 */
export type StartStage = 'load' | 'check' | 'setup';

interface StartFailure {
  stage?: StartStage;
  check?: string | undefined;
  cause?: unknown;
}

/** The author's module could not be loaded or its setup failed: no job can run. */
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
  /** After the signal and `generator.return()`, ms until the thread is killed. Default 2,000. */
  graceMs?: number;
  /** Bytes of chunks that an attempt may have under way before its generator is held. Default 4 MB. */
  windowBytes?: number;
}

export interface Executor {
  /** Loads the module and runs its setup wherever jobs will run. @throws HandlerNotLoadedError */
  start(): Promise<HandlerConfig>;
  /** Jobs that fit at a time, when all is well. Known after `start`. */
  readonly slots: number;
  /** Slots that are free in threads that are up. */
  readonly free: number;
  /** Why it cannot run jobs at the moment, if it cannot. */
  readonly trouble: string | undefined;
  /** A thread does not end although it was killed: the process has to be ended, by SIGKILL. */
  readonly stuckThread: string | undefined;
  /** Called when `free` has grown, or `trouble` or `stuckThread` has changed. */
  onChange(listener: () => void): void;
  /** Starts an attempt; waits for a slot if there is none (a thread may have died meanwhile). */
  execute(lease: Lease, timeoutMs: number, sink: ExecutionSink): Execution;
  /** Runs teardown and ends all threads; what still runs is stopped as `shutdown`. */
  stop(): Promise<void>;
}
