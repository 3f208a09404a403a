// The limits of workers' calls. Apart from what acts on them, which loads a library.

/** Calls are counted in windows of so many seconds: shorter than a lease, which a refused renewal needs. */
export const WORKER_CALL_WINDOW_S = 10;

export interface WorkerLimits {
  /** Calls with one worker key in 10 s. Default 50,000. */
  calls: number;
  /** Worker ids of one key that are live. Default 1,000. */
  ids: number;
  /** Worker ids of one user that are live, whichever keys they use. Default 2,000. */
  userids: number;
}

export const DEFAULT_WORKER_LIMITS: WorkerLimits = { calls: 50_000, ids: 1_000, userids: 2_000 };
