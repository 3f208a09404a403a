// Whether a RunPod worker that has asked to be replaced gets jobs: not before the next one is there, unless
// nobody replaces it. The two have one name: the next one is known by its first take, or by a silence before.
import type { Clock } from '../../base/clock.ts';

/** A worker that has asked, and is silent for so long, has left, ms. */
const GONE_MS = 2_000;
/** One that has asked, and still polls after so long, is not being replaced, ms. */
const WORN_MS = 30_000;

export class Recycling {
  readonly #clock: Clock;
  readonly #onStays: () => void;
  #since: number | undefined;

  /** `onStays`: it is not replaced and gets jobs again. */
  constructor(clock: Clock, onStays: () => void) {
    this.#clock = clock;
    this.#onStays = onStays;
  }

  begin(): void {
    this.#since = this.#clock.now();
  }

  /** Somebody is heard again after such a silence. */
  noteSilence(silentMs: number): void {
    if (silentMs >= GONE_MS) this.end();
  }

  /** The next process is there. */
  end(): void {
    this.#since = undefined;
  }

  get isActive(): boolean {
    if (this.#since === undefined) return false;
    if (this.#clock.now() - this.#since < WORN_MS) return true;
    this.#since = undefined;
    this.#onStays();
    return false;
  }
}
