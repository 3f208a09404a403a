// Waits for something to be found among what has come so far: whoever notes what comes says when to
// look again.
import { within } from './checks.ts';

export class Watch {
  readonly #lookers = new Set<() => void>();

  /** Something has come: whoever waits looks again. */
  look(): void {
    for (const look of this.#lookers) look();
  }

  /** What `find` finds. `what` completes "… within 5 s". @throws Deviation */
  async until<T>(ms: number, what: string, find: () => T | undefined): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<T>();
    const look = () => {
      const found = find();
      if (found !== undefined) resolve(found);
    };
    this.#lookers.add(look);
    look();
    try {
      return await within(ms, what, promise);
    } finally {
      this.#lookers.delete(look);
    }
  }
}
