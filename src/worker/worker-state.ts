// The states of a worker.
import type { ShutdownResult } from './shutdown.ts';

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
