// The states of a worker, and its health: whether it is ready, and if not, why.
import type { ShutdownResult } from './shutdown.ts';
import type { CompleteWorkerOptions } from './worker-options.ts';
import type { WorkerParts } from './worker-parts.ts';

/**
 * `starting`: the handler's setup, then the first hello. `ready`: takes jobs. `draining`: takes
 * none, lets running ones end. `stopped`: has sent its bye. `failed`: cannot continue, and holds no
 * leases. `recycle`: a new process must replace this one.
 */
export type WorkerState =
  | { readonly name: 'starting'; readonly step: 'setup' | 'hello' }
  | { readonly name: 'ready' }
  | { readonly name: 'draining'; readonly askedBy: ShutdownCause }
  | { readonly name: 'stopped'; readonly result: ShutdownResult; readonly recycle?: Recycle }
  | {
      readonly name: 'failed';
      readonly reason: string;
      /** The platform refuses the worker's key, or has no such endpoint. */
      readonly isRefused?: boolean;
      readonly recycle?: Recycle;
    };

/** Who stops the worker. `itself`: it asks for a new process, or `recycle` was called. */
export type ShutdownCause = 'caller' | 'platform' | 'itself';

export interface Recycle {
  reason: string;
  /**
   * A thread does not end. The process must be killed with SIGKILL, because a normal exit waits for
   * the thread.
   */
  isStuck: boolean;
}

export interface WorkerHealth {
  /**
   * Setup is done, takes are answered, the executor can run jobs, no slot is stuck, leases are
   * renewed.
   */
  ready: boolean;
  /** Why it is not ready. */
  reason?: string;
  state: WorkerState['name'];
  slots: number;
  running: number;
  /** Attempts that have ended since the start. */
  ended: number;
  /** Running attempts that were stopped long ago and did not end. */
  stuck: number;
  /** When the platform last answered a take, Unix ms. */
  lastTakeAt?: number;
  /** When the platform last answered a renewal, Unix ms. */
  lastRenewAt?: number;
  /** Number of unacknowledged reports. */
  outboxDepth: number;
  /** Error with which job after job failed; while it is set, the worker takes one job at a time. */
  sameError?: string;
  /** Why reports are only in memory although a disk outbox was requested. */
  outboxTrouble?: string;
}

interface ObservedWorker {
  options: CompleteWorkerOptions;
  parts: WorkerParts;
  state: WorkerState;
}

export function describeHealth(worker: ObservedWorker): WorkerHealth {
  const { options, parts, state } = worker;
  const { executor, outbox } = options;
  const { attempts, breaker, leaseKeeper, reporter, takeLoop } = parts;
  const reason = findTrouble(worker);
  const { lastTakeAt } = takeLoop;
  const { lastRenewAt } = leaseKeeper;
  const { diskError: outboxTrouble } = outbox;
  const { sameError } = breaker;
  return {
    ready: reason === undefined,
    ...(reason !== undefined && { reason }),
    state: state.name,
    slots: state.name === 'starting' ? 0 : executor.slots,
    running: attempts.active,
    ended: attempts.ended,
    stuck: attempts.stuck,
    ...(lastTakeAt !== undefined && { lastTakeAt }),
    ...(lastRenewAt !== undefined && { lastRenewAt }),
    outboxDepth: reporter.depth,
    ...(sameError !== undefined && { sameError }),
    ...(outboxTrouble !== undefined && { outboxTrouble }),
  };
}

function findTrouble({ options, parts, state }: ObservedWorker): string | undefined {
  const { executor } = options;
  const { attempts, breaker, leaseKeeper, session, takeLoop } = parts;
  switch (state.name) {
    case 'starting':
      return session.trouble ?? `starting: waiting for the ${state.step}`;
    case 'draining':
    case 'stopped':
      return state.name;
    case 'failed':
      return `failed: ${state.reason}`;
    case 'ready':
      if (session.trouble) return session.trouble;
      if (executor.trouble) return executor.trouble;
      if (attempts.stuck > 0) return `stuck slots: ${attempts.stuck} of ${executor.slots}`;
      if (leaseKeeper.isOverdue) return 'lease renewals failed for too long';
      return breaker.trouble ?? takeLoop.trouble;
  }
}
