// Limits of workers' calls. A separate file, because the code that applies them loads a library.

/**
 * Length of the window in which calls are counted, s. Shorter than a lease, so that a refused renewal
 * can succeed before its lease expires.
 */
export const WORKER_CALL_WINDOW_S = 10;

export interface WorkerLimits {
  /** Calls with one worker key in 10 s. Default 50,000. */
  calls: number;
  /** Live worker IDs of one key. Default 1,000. */
  ids: number;
  /** Live worker IDs of one user, over all keys. Default 2,000. */
  userids: number;
}

export const DEFAULT_WORKER_LIMITS: WorkerLimits = { calls: 50_000, ids: 1_000, userids: 2_000 };
