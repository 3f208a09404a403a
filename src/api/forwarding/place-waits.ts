// Lets any number of requests wait for the next change of the placement, with one wait at the placement itself.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Placement } from './placement.ts';

export class PlaceWaits {
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
