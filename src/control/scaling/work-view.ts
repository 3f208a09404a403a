// What a queue or a balancer knows of an endpoint's work and workers.
import type {
  ParkingState,
  RenewReply,
  WorkerParking,
  WorkerStart,
} from '../../wire/link/worker-link.ts';
import type { ScalerInput } from '../../wire/resources/scaling.ts';
import type { GpuCount } from '../billing/billing-keeper.ts';

export interface WorkView {
  load(endpointId: string): Promise<WorkLoad>;
  /** Drains the pod's workers. Has no effect if there are none. */
  drain(endpointId: string, podId: string): void;
  /** Asks the pod's workers to be parked, or to be ready again. Absent: none can be parked. */
  park?(endpointId: string, podId: string, wish: ParkWish): void;
}

export type ParkWish = NonNullable<RenewReply['parking']>;

export interface WorkLoad {
  /** Jobs that a worker could take now. */
  waiting: number;
  /** Running jobs; for a balancer all open requests, waiting ones included. */
  running: number;
  /** When the oldest waiting job was queued, Unix ms. */
  oldestQueuedAt: number | null;
  /** Those of the waiting jobs that need a GPU type after this one in the endpoint's list. Absent: none. */
  outgrown?: ScalerInput['load']['outgrown'];
  /** Those of the waiting jobs that are urgent. Absent: none. */
  urgent?: { priority: number; waiting: number };
  /** What ended attempts used of GPUs. Absent: nothing, or not known. */
  gpuCount?: GpuCount;
  /** The ready workers. */
  workers: readonly SeenWorker[];
}

export interface SeenWorker {
  /** The worker's pod, which may have several workers; null if it is not the platform's. */
  podId: string | null;
  /** Jobs that it has now. */
  jobs: number;
  /** Jobs that it has ever got, if known: a change shows that it was not idle. */
  taken?: number;
  /** When its last job must end, Unix ms. */
  busyUntil?: number;
  draining: boolean;
  /** It has just arrived, or the platform has just started: it may still say that it can be parked. */
  isNew?: true;
  /** Its last start, if it was measured. */
  start?: WorkerStart;
  /** Absent: it cannot be parked. */
  parking?: {
    /** Not known of an owner of an earlier version. */
    way?: WorkerParking['way'];
    state: ParkingState;
    /** GPU memory that came free when it was parked. */
    vramBytes: number;
    /** Host memory for all parked workers of its machine. */
    hostLimitBytes: number;
    /** What the platform has asked for. */
    wish?: ParkWish;
    /** Its attempts could be suspended now. */
    canSuspend?: true;
    /** Of its attempts, if it has any: the highest priority, the first start (Unix ms), and the most suspensions of one. */
    attempts?: { priority: number; startedAt: number; suspensions: number; suspendedMs: number };
    /** Since when its attempts stand still, Unix ms. */
    suspendedSince?: number;
  };
}
