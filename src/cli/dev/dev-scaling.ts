// What `millrace dev` knows of the worker of one handler, for the reason why its jobs wait. Pure.
import type { KnownScaling } from '../../wire/resources/scaling.ts';

export interface DevWorkerState {
  /** A worker takes jobs. */
  isServed: boolean;
  /** The worker that loads the handler. */
  starting: { workerId: string; since: number } | undefined;
  /** Why the last worker ended. */
  failure: DevFailure | undefined;
}

export interface DevFailure {
  reason: string;
  isHandler: boolean;
  /** Unix ms. */
  since: number;
  /** Unix ms; null: none starts before a file changes. */
  restartAt: number | null;
}

export function describeDevScaling(state: DevWorkerState): KnownScaling {
  const { failure, isServed, starting } = state;
  // All that can keep a job from a worker that runs is known to the queue.
  if (isServed) return 'none';
  if (!starting && !failure) return 'unknown';
  const { isHandler = false, reason = '', restartAt = null, since = 0 } = failure ?? {};
  return {
    ...{ workersMax: 1, workers: starting ? 1 : 0, unversioned: null, since, costPerHour: 0 },
    ...(failure ? { cause: 'crashed', reason } : { cause: 'first', reason: 'a worker starts' }),
    crashes: {
      ...{ streak: failure ? 1 : 0, reason, isHandler },
      notBefore: starting ? starting.since : restartAt,
    },
    starting: starting
      ? { podId: starting.workerId, since: starting.since, isPulling: false, reason: null }
      : null,
  };
}
