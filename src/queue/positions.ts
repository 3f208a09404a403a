// Numbers jobs in the order of their submission.
import type { Clock } from '../base/clock.ts';
import type { Store } from '../store/store.ts';

export class Positions {
  readonly #clock: Pick<Clock, 'now'>;
  #last = 0;

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  /** Continues after all stored jobs: the clock of an earlier process may have been ahead. */
  async resume(store: Store): Promise<void> {
    const last = await store.read((tx) => {
      const newest = tx.each(tx.endpoints(), ({ id }) =>
        tx.jobs({ endpointId: id, status: undefined, before: undefined, limit: 1 }),
      );
      return newest.flat().reduce((highest, { position }) => Math.max(highest, position), 0);
    });
    this.#last = Math.max(this.#last, last);
  }

  /** Unix microseconds: the current millisecond and a counter. Positions always grow. */
  next(): number {
    this.#last = Math.max(this.#clock.now() * 1_000, this.#last + 1);
    return this.#last;
  }
}
