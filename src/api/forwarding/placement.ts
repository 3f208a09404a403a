// Which node serves an endpoint. The cluster implements it; forwarding follows it.
import { type Clock, sleep } from '../../base/clock.ts';

/** `none`: no node owns the endpoint at the moment. */
export type OwnerNode = { kind: 'here' } | { kind: 'node'; url: string } | { kind: 'none' };

export interface Placement {
  /** `undefined` stands for the control plane: everything that belongs to no single endpoint. */
  find(endpointId: string | undefined): OwnerNode;
  /** Whether the node with this URL has lost its lease: it no longer owns anything, and may never answer. */
  isDead(url: string): boolean;
  /** Reloads which node owns what. Resolves at once if that has just been done. */
  refresh(): Promise<void>;
  /** Like `refresh`, a few times a second at most: for keys and endpoints that this node does not know. */
  lookUp(): Promise<void>;
  /** This node serves a request for the endpoint or the control plane. @returns the function to call at its end */
  begin(endpointId: string | undefined): () => void;
  /** Resolves at the next change of the placement, or when the signal aborts. */
  untilChange(signal: AbortSignal): Promise<void>;
}

/**
 * Lets any number of requests wait for the next change of the placement, with one wait at the placement itself.
 */
export class OwnerWaits {
  readonly #placement: Placement;
  readonly #clock: Clock;
  readonly #closed = new AbortController();
  /** Aborts at the next change. Undefined while nobody waits. */
  #change: AbortController | undefined;

  constructor(placement: Placement, clock: Clock) {
    this.#placement = placement;
    this.#clock = clock;
  }

  /** Aborts when every wait has ended. */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Resolves at the next change, after `ms`, or when the signal aborts. */
  async wait(ms: number, signal: AbortSignal): Promise<void> {
    const change = this.#watch();
    await sleep(this.#clock, ms, AbortSignal.any([change, signal]));
  }

  /** Ends every wait. */
  close(): void {
    this.#closed.abort();
    this.#change?.abort();
  }

  #watch(): AbortSignal {
    if (this.#change) return this.#change.signal;
    const change = new AbortController();
    this.#change = change;
    const end = () => {
      if (this.#change === change) this.#change = undefined;
      change.abort();
    };
    if (this.#closed.signal.aborted) end();
    else this.#placement.untilChange(this.#closed.signal).then(end, end);
    return change.signal;
  }
}
