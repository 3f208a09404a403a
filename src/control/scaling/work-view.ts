// What the fleet sees of an endpoint's work, whether it comes from a queue or over a balancer.

export interface WorkView {
  load(endpointId: string): Promise<WorkLoad>;
  /** The pod's workers get nothing new; they end what they have. Does nothing if there are none. */
  drain(endpointId: string, podId: string): void;
}

export interface WorkLoad {
  /** Jobs that could be taken now. */
  waiting: number;
  /** Jobs that workers have; requests, those that wait included. */
  running: number;
  /** When the job that has waited longest was queued, Unix ms. */
  oldestQueuedAt: number | null;
  /** Those that are ready. */
  workers: readonly SeenWorker[];
}

export interface SeenWorker {
  /** The pod that it runs in, which can hold several workers; null: none of the platform's. */
  podId: string | null;
  /** That it has now. */
  jobs: number;
  /** That it has ever got, if that is known: another number than before means that it was not idle. */
  taken?: number;
  /** When the last of its jobs is over at the latest, Unix ms. */
  busyUntil?: number;
  draining: boolean;
}
