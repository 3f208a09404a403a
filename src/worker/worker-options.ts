// The options of a worker: units, defaults, effects. They become one complete internal object here, and
// nowhere else.
import { type Clock, systemClock } from '../base/clock.ts';
import { type Log, silentLog } from '../base/log.ts';
import type { Device, WorkerLink } from '../wire/link/worker-link.ts';
import type { Executor } from './execution/executor.ts';
import { MemoryOutbox, type Outbox } from './outbox/outbox.ts';
import type { WorkerObserver } from './worker-observer.ts';

export interface WorkerOptions {
  /** The queue, or a carrier to it. The worker does not close it. */
  link: WorkerLink;
  /** What runs handlers; started and stopped by the worker. */
  executor: Executor;
  /** Stable over restarts. Letters, digits, `.`, `_`, `-`, at most 128. */
  workerId: string;
  /** Larger than that of any process that ran under this id before. */
  incarnation: number;
  /** Of the package; shown by the platform. */
  version: string;
  /** What the process is pinned to. */
  devices: readonly Device[];
  /** Default: the machine's. */
  clock?: Clock;
  /** Default: silent. */
  log?: Log;
  /** How long a draining worker lets running jobs go on before it stops them, ms. Default 30,000. */
  drainMs?: number;
  /** After that, how long stopped jobs may take to end before they are released, ms. Default 3,000. */
  forceMs?: number;
  /** How long a leaving worker tries to deliver what is left and to say bye, ms. Default 5,000. */
  flushMs?: number;
  /** Wait between two hellos while the key is refused, ms. Default 30,000. */
  refusedRetryMs?: number;
  /**
   * A job that still runs this long after its lease came is named to the platform, before the next
   * renewal is due: from then on a crash of the process counts against the job. ms, default 200.
   */
  nameWithinMs?: number;
  /** Nothing more is taken while undelivered reports hold more than this. Default 64 MB. */
  maxOutboxBytes?: number;
  /** Keeps reports until they are acknowledged. Default: in memory. */
  outbox?: Outbox;
  /**
   * How long an attempt that was told to stop may take to end before its slot counts as stuck, ms:
   * longer than the executor needs to kill a thread. Default 10,000.
   */
  stuckAfterMs?: number;
  /**
   * Resident memory that the process may take, bytes. From 80 % on nothing more is taken, and once
   * nothing runs the worker leaves with `recycle`. Past it, the job that runs fails with
   * `memory_limit_exceeded`; if several run, all are given back to run alone, and the worker leaves.
   * Default: no limit.
   */
  memoryLimitBytes?: number | undefined;
  /** Resident memory of the process, bytes. Default: as the system says. */
  readRssBytes?: () => number;
  /** Is told what happens. Default: nobody is. */
  observer?: WorkerObserver | undefined;
}

export type CompleteWorkerOptions = Readonly<Required<WorkerOptions>>;

export function completeWorkerOptions(options: WorkerOptions): CompleteWorkerOptions {
  return {
    clock: systemClock,
    log: silentLog,
    drainMs: 30_000,
    forceMs: 3_000,
    flushMs: 5_000,
    refusedRetryMs: 30_000,
    nameWithinMs: 200,
    maxOutboxBytes: 64 * 1_048_576,
    outbox: new MemoryOutbox(),
    stuckAfterMs: 10_000,
    memoryLimitBytes: undefined,
    readRssBytes: () => process.memoryUsage.rss(),
    observer: undefined,
    ...options,
  };
}
