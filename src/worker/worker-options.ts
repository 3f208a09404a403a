// The options of a worker, with units, defaults and effects, and the events that it reports to its observer. This file alone
// fills in the defaults.
import { type Clock, systemClock } from '../base/clock.ts';
import { type Log, silentLog } from '../base/log.ts';
import type { BatchEvent } from '../handler/batch/settings.ts';
import type { AttemptUsage } from '../wire/job/attempt.ts';
import type {
  Device,
  Lease,
  LinkErrorCode,
  Outcome,
  WorkerLink,
} from '../wire/link/worker-link.ts';
import type { BreakerState } from './circuit-breaker.ts';
import type { ChunkMessage, ExecutionSink, Executor } from './execution/executor.ts';
import { MemoryOutbox, type Outbox } from './outbox/outbox.ts';
import type { ParkingMachine, ShownParking } from './parking/worker-parking.ts';
import type { BeforeStart } from './starts.ts';

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
  /** Memory that a parked worker shares with others. Default: it cannot be parked. */
  parkingMachine?: ParkingMachine | undefined;
  /** It takes no job before it has been parked and woken, if it can be parked at all. Default: false. */
  isSpare?: boolean;
  /** What came before the process. Default: nothing is known. */
  before?: BeforeStart | undefined;
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
    parkingMachine: undefined,
    isSpare: false,
    before: undefined,
    observer: undefined,
    ...options,
  };
}

export type LinkVerb = keyof WorkerLink;

export interface WorkerObserver {
  /** The executor has received the attempt. */
  attemptBegan(lease: Lease): void;
  /** A running attempt's handler has yielded chunks; they are not delivered yet. */
  chunksYielded(lease: Lease, message: ChunkMessage): void;
  /** Also for attempts that never began. The outcome is not delivered yet. */
  attemptEnded(lease: Lease, outcome: Outcome, usage: AttemptUsage | undefined): void;
  /** Breaker state, for the next process. */
  breakerChanged(state: BreakerState): void;
  /** The worker's models have another place, or are on the way there. */
  parkingChanged(state: ShownParking): void;
  /** A batch of a batch handler has started or failed. */
  batchChanged(event: BatchEvent): void;
  /** The platform has answered the long poll that renews all leases. */
  leasesRenewed(): void;
  /** A call failed; most are repeated. */
  callFailed(verb: LinkVerb, code: LinkErrorCode): void;
  /** A call succeeded after failures. */
  reconnected(verb: LinkVerb): void;
}

/** Observes nothing. */
export const NO_OBSERVER: WorkerObserver = {
  attemptBegan() {},
  chunksYielded() {},
  attemptEnded() {},
  breakerChanged() {},
  parkingChanged() {},
  batchChanged() {},
  leasesRenewed() {},
  callFailed() {},
  reconnected() {},
};

interface WatchedChunks {
  lease: Lease;
  sink: ExecutionSink;
  observer: WorkerObserver;
}

/** Wraps the sink so that the observer learns of its chunks. */
export function watchChunks({ lease, sink, observer }: WatchedChunks): ExecutionSink {
  return {
    ...sink,
    chunks: (message) => {
      observer.chunksYielded(lease, message);
      sink.chunks(message);
    },
  };
}
