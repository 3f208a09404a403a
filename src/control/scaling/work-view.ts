// The fleet's view of an endpoint's load and workers, from a queue or a balancer.

import type { ScalerInput } from '../../wire/resources/scaling.ts';
import type { GpuCount } from '../billing/gpu-use.ts';

export interface WorkView {
  load(endpointId: string): Promise<WorkLoad>;
  /** Drains the pod's workers. Has no effect if there are none. */
  drain(endpointId: string, podId: string): void;
}

export interface WorkLoad {
  /** Jobs that a worker could take now. */
  waiting: number;
  /** Running jobs; for a balancer all open requests, waiting ones included. */
  running: number;
  /** When the oldest waiting job was queued, Unix ms. */
  oldestQueuedAt: number | null;
  /** Those of the waiting jobs that need a GPU type after this one in the endpoint's list. Absent: none. */
  outgrown?: ScalerInput['load']['outgrown'];
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
}
