// Waits until a condition holds; the owner of the data calls `check` after each change.
import { within } from './checks.ts';

export class Watch {
  readonly #checks = new Set<() => void>();

  /** Makes all waiting calls check again. */
  check(): void {
    for (const check of this.#checks) check();
  }

  /** Returns what `find` returns. `what` completes "… within 5 s". @throws Deviation */
  async until<T>(ms: number, what: string, find: () => T | undefined): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<T>();
    const check = () => {
      const found = find();
      if (found !== undefined) resolve(found);
    };
    this.#checks.add(check);
    check();
    try {
      return await within(ms, what, promise);
    } finally {
      this.#checks.delete(check);
    }
  }
}
