// The reasons for stopping an attempt, the reason its signal carries, the outcome of a stopped attempt, and where
// it was then: its output so far and its code position.

import { getHeapStatistics } from 'node:v8';
import { elapsedTime } from '../../base/clock.ts';
import type { StopLevel, StuckPlace } from '../../wire/job/attempt.ts';
import type { ErrorCode } from '../../wire/job/job.ts';
import type { Outcome } from '../../wire/link/worker-link.ts';

/**
 * `cancelled`: by the client. `lost`: the lease is over. `timeout`: it ran too long. `shutdown`:
 * the worker exits. `memory`: alone in its process, it used too much memory. `suspect`: one of
 * several attempts used too much. `neighbour`: another attempt broke the process. Every stop escalates: signal,
 * `generator.return()`, grace period, thread, process.
 */
export type StopReason =
  | 'cancelled'
  | 'lost'
  | 'timeout'
  | 'shutdown'
  | 'memory'
  | 'suspect'
  | 'neighbour';

const MESSAGES: Readonly<Record<StopReason, string>> = {
  cancelled: 'the job was cancelled',
  lost: 'the lease of the job was lost; another worker may run the job',
  timeout: 'the job ran longer than its timeout',
  shutdown: 'the worker is shutting down',
  memory: "the job's process uses too much memory",
  suspect: 'the process of this job and others uses too much memory',
  neighbour: 'another job has broken the process of this job',
};

/** The reason of `ctx.signal`: a TimeoutError or an AbortError; its `reason` says more. */
export class StopError extends Error {
  override readonly name: 'TimeoutError' | 'AbortError';
  readonly reason: StopReason;

  /** `detail` replaces the usual message. */
  constructor(reason: StopReason, detail: string = MESSAGES[reason]) {
    super(detail);
    this.name = reason === 'timeout' ? 'TimeoutError' : 'AbortError';
    this.reason = reason;
  }
}

interface StoppedAttempt {
  reason: StopReason;
  /** More about the reason; for `memory`, how much was used. */
  detail?: string | undefined;
  /** The last step that was needed. */
  level: StopLevel;
  executionMs: number;
  timeoutMs: number;
  /** Where it was stuck, if known. */
  stuck?: StuckPlace | undefined;
}

export function createStoppedOutcome(stopped: StoppedAttempt): Outcome {
  const { reason, level, timeoutMs, detail = MESSAGES[reason] } = stopped;
  const executionMs = Math.round(stopped.executionMs);
  switch (reason) {
    case 'timeout': {
      const message = `the job ran longer than its timeout of ${timeoutMs} ms`;
      const error = describeStop('execution_timeout', message, stopped);
      return { kind: 'timed_out', executionMs, error, stopped: level };
    }
    case 'memory': {
      const error = describeStop('memory_limit_exceeded', detail, stopped);
      return { kind: 'failed', executionMs, error, retry: 'default', stopped: level };
    }
    case 'cancelled':
    case 'lost':
      return { kind: 'cancelled', executionMs, stopped: level };
    case 'shutdown':
      return { kind: 'released', reason: 'drain' };
    case 'suspect':
    case 'neighbour':
      return { kind: 'released', reason };
  }
}

/** The history of a job's attempts keeps only messages, so a hard stop is named there too. */
function describeStop(code: ErrorCode, message: string, { level, stuck }: StoppedAttempt) {
  if (!stuck) return { code, message };
  const isForced = level === 'thread' || level === 'process';
  const where = isForced ? `; it did not stop: ${describeStuck(stuck)}` : '';
  return { code, message: `${message}${where}`, stuck };
}

/** Counts the chunks of one attempt as they are sent. */
export class ChunkHistory {
  readonly #now: () => number;
  #count = 0;
  #lastAt = 0;

  /** A clock in ms with any origin. */
  constructor(now: () => number) {
    this.#now = now;
  }

  add(count: number): void {
    this.#count += count;
    this.#lastAt = this.#now();
  }

  describe(): Pick<StuckPlace, 'chunks' | 'lastChunkMs'> {
    if (this.#count === 0) return { chunks: 0 };
    return {
      chunks: this.#count,
      lastChunkMs: Math.max(0, Math.round(this.#now() - this.#lastAt)),
    };
  }
}

/** The chunks of an attempt that runs in the calling thread. */
export class AttemptHistory extends ChunkHistory {
  readonly #loopAtStart = performance.eventLoopUtilization();

  constructor() {
    super(elapsedTime);
  }

  /** State that the attempt's own thread records. */
  locate(state: StuckPlace['state']): StuckPlace {
    const { utilization } = performance.eventLoopUtilization(this.#loopAtStart);
    return {
      state,
      ...this.describe(),
      eventLoopUtilization: roundShare(utilization),
      heapUsedBytes: getHeapStatistics().used_heap_size,
    };
  }
}

/** Rounds to two decimals. */
export function roundShare(share: number): number {
  return Math.round(Math.min(1, Math.max(0, share)) * 100) / 100;
}

/** A short phrase for logs and messages. */
export function describeStuck({ state, stack }: Pick<StuckPlace, 'state' | 'stack'>): string {
  switch (state) {
    case 'waiting':
      return 'the handler was waiting, none of its code was running';
    case 'unreachable':
      return 'its thread did not respond: in native code, in garbage collection, or short of CPU time';
    case 'running': {
      const innermost = stack?.split('\n', 1)[0]?.trim();
      return innermost === undefined
        ? 'code of the handler was running'
        : `it was running ${innermost}`;
    }
  }
}
