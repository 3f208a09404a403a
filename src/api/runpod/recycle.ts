// Decides when a RunPod worker that has asked to be replaced gets jobs again: after its successor
// has arrived, or if nobody replaces it. Both use the same ID: the successor is recognised by its
// first take, or by a silence before it.
import type { Clock } from '../../base/clock.ts';

/** A worker that has asked and was silent for this long has exited, ms. */
const GONE_MS = 2_000;
/** A worker that has asked and still polls after this time is not being replaced, ms. */
const UNREPLACED_MS = 30_000;

export class Recycling {
  readonly #clock: Clock;
  readonly #onNotReplaced: () => void;
  #since: number | undefined;

  /** `onNotReplaced`: the worker is not replaced and gets jobs again. */
  constructor(clock: Clock, onNotReplaced: () => void) {
    this.#clock = clock;
    this.#onNotReplaced = onNotReplaced;
  }

  begin(): void {
    this.#since = this.#clock.now();
  }

  /** A request has arrived after this silence. */
  noteSilence(silentMs: number): void {
    if (silentMs >= GONE_MS) this.end();
  }

  /** The successor has arrived. */
  end(): void {
    this.#since = undefined;
  }

  get isActive(): boolean {
    if (this.#since === undefined) return false;
    if (this.#clock.now() - this.#since < UNREPLACED_MS) return true;
    this.#since = undefined;
    this.#onNotReplaced();
    return false;
  }
}
