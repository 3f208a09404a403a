// Waits until a condition holds; the owner of the data calls `look` after each change.
import { within } from './checks.ts';

export class Watch {
  readonly #lookers = new Set<() => void>();

  /** Makes all waiting calls check again. */
  look(): void {
    for (const look of this.#lookers) look();
  }

  /** Returns what `find` returns. `what` completes "… within 5 s". @throws Deviation */
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
