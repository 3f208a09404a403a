// Random choices of the fuzzer. Each request has its own generator, so that seed and number
// reproduce it.
import { createRandom } from '../random.ts';

export class Dice {
  readonly #random: () => number;

  /** `number` distinguishes the requests of one seed. */
  constructor(seed: number, number: number) {
    this.#random = createRandom(Math.imul(seed ^ 0x9e3779b9, 2 * number + 1));
  }

  chance(probability: number): boolean {
    return this.#random() < probability;
  }

  /** From `min` to `max`, both of them included. */
  integer(min: number, max: number): number {
    return min + Math.floor(this.#random() * (max - min + 1));
  }

  pick<T>(list: readonly [T, ...T[]]): T {
    return list[this.integer(0, list.length - 1)] ?? list[0];
  }

  /** Undefined if there is none. */
  pickAny<T>(list: readonly T[]): T | undefined {
    return list[this.integer(0, list.length - 1)];
  }

  /** By their weights. */
  weigh<T>(weighted: readonly [weight: number, value: T][], otherwise: T): T {
    const total = weighted.reduce((sum, [weight]) => sum + weight, 0);
    let left = this.#random() * total;
    for (const [weight, value] of weighted) {
      left -= weight;
      if (left < 0) return value;
    }
    return otherwise;
  }
}
