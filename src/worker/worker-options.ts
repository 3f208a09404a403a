// The options of a worker, with units, defaults and effects. This file alone fills in the defaults.
import { type Clock, systemClock } from '../base/clock.ts';
import { type Log, silentLog } from '../base/log.ts';
import type { Device, WorkerLink } from '../wire/link/worker-link.ts';
import type { BreakerState } from './circuit-breaker.ts';
import type { Executor } from './execution/executor.ts';
import { MemoryOutbox, type Outbox } from './outbox/outbox.ts';
import type { WorkerObserver } from './worker-observer.ts';

export interface WorkerOptions {
  /** The queue, or a carrier to it. The worker does not close it. */
  link: WorkerLink;
  /** Runs the handlers; the worker starts and stops it. */
  executor: Executor;
  /** Stable over restarts. Letters, digits, `.`, `_`, `-`, at most 128. */
  workerId: string;
  /** Number of this start; larger than that of any earlier process with this worker ID. */
  incarnation: number;
  /** Version of the package; shown by the platform. */
  version: string;
  /** Number of the uploaded handler that it runs. Default: none. */
  handlerVersion?: number | undefined;
  /** Devices that the process is pinned to. */
  devices: readonly Device[];
  /** Default: the machine's clock. */
  clock?: Clock;
  /** Default: silent. */
  log?: Log;
  /**
   * How long a draining worker lets running jobs continue before it stops them, ms. Default 30,000.
   */
  drainMs?: number;
  /**
   * After `drainMs`: how long stopped jobs may take to end before they are released, ms. Default
   * 3,000.
   */
  forceMs?: number;
  /** How long a stopping worker tries to deliver reports and to send its bye, ms. Default 5,000. */
  flushMs?: number;
  /** Wait between two hellos while the key is rejected, ms. Default 30,000. */
  refusedRetryMs?: number;
  /**
   * The worker fails if the platform refuses its key, or has no such endpoint, for this long, ms. Default: it tries
   * again without end.
   */
  authTimeoutMs?: number;
  /**
   * If a job still runs this long after its lease arrived, the worker reports it to the platform
   * without waiting for the next renewal. From then on, a crash of the process counts against
   * the job. ms, default 200.
   */
  nameWithinMs?: number;
  /** The worker takes nothing while undelivered reports exceed this size. Default 64 MB. */
  maxOutboxBytes?: number;
  /** Keeps reports until they are acknowledged. Default: in memory. */
  outbox?: Outbox;
  /**
   * How long a stopped attempt may take to end before its slot counts as stuck, ms; longer than the
   * executor needs to kill a thread. Default 10,000.
   */
  stuckAfterMs?: number;
  /**
   * Resident memory that the process may use, bytes. From 80 % on, the worker takes no jobs and exits
   * with `recycle` when none runs. Beyond the limit, a single running job fails with
   * `memory_limit_exceeded`. If several jobs run, all are released to run alone, and the worker exits. Default: no
   * limit.
   */
  memoryLimitBytes?: number | undefined;
  /** Measures the resident memory of the process, bytes. Default: from the system. */
  readRssBytes?: () => number;
  /**
   * Different jobs that fail in a row with the same error until the worker takes one job at a time, with growing waits. It is
   * then replaced. 0: never. Default 0.
   */
  breakAfter?: number;
  /** Breaker state of the previous process. Default: closed. */
  breakerState?: BreakerState | undefined;
  /** Level of the log line of a failed attempt. Default `warn`. */
  failureLevel?: 'debug' | 'warn';
  /** Receives the worker's events. Default: none. */
  observer?: WorkerObserver | undefined;
}

export type CompleteWorkerOptions = Readonly<Required<WorkerOptions>>;

export function completeWorkerOptions(options: WorkerOptions): CompleteWorkerOptions {
  return {
    handlerVersion: undefined,
    clock: systemClock,
    log: silentLog,
    drainMs: 30_000,
    forceMs: 3_000,
    flushMs: 5_000,
    refusedRetryMs: 30_000,
    authTimeoutMs: Number.POSITIVE_INFINITY,
    nameWithinMs: 200,
    maxOutboxBytes: 64 * 1_048_576,
    outbox: new MemoryOutbox(),
    stuckAfterMs: 10_000,
    memoryLimitBytes: undefined,
    readRssBytes: () => process.memoryUsage.rss(),
    breakAfter: 0,
    breakerState: undefined,
    failureLevel: 'warn',
    observer: undefined,
    ...options,
  };
}
