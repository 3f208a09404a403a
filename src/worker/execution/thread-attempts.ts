// The running attempts of one handler thread by number. Not a Map: a handler can change its methods, and a Map whose
// entries come and go keeps removed entries alive (base/memory/transient-entries.ts).
import type { Invocation } from '../../handler/attempt/invoke.ts';
import { createObject } from '../../wire/primordials.ts';

export class ThreadAttempts {
  readonly #byNumber: Record<number, Invocation> = createObject(null);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The attempt, if there is exactly one. */
  get only(): Invocation | undefined {
    if (this.#size !== 1) return undefined;
    for (const number in this.#byNumber) return this.#byNumber[number];
    return undefined;
  }

  get(number: number): Invocation | undefined {
    return this.#byNumber[number];
  }

  /** Each number is added once. */
  add(number: number, attempt: Invocation): void {
    this.#byNumber[number] = attempt;
    this.#size += 1;
  }

  /** Each attempt is removed once. */
  remove(number: number): void {
    delete this.#byNumber[number];
    this.#size -= 1;
  }
}
