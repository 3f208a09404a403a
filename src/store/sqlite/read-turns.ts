// Limits how much one turn of the event loop reads from the store: otherwise, reads that were
// requested together would run back to back and block everything else.
import { setImmediate } from '../../base/clock.ts';
import type { Row } from '../store.ts';

/** About 10 ms of reading. The read that reaches the limit is the last one of its turn. */
const TURN_BYTES = 4 * 1_048_576;

export class ReadTurns {
  #bytes = 0;
  #next: Promise<void> | undefined;

  /** This turn has read enough. */
  get isOver(): boolean {
    return this.#bytes >= TURN_BYTES;
  }

  /** After the wait, check `isOver` again; the read then runs without a further wait. */
  next(): Promise<void> {
    this.#next ??= this.#startTurn();
    return this.#next;
  }

  note(rows: readonly Row[]): void {
    for (const row of rows) {
      const value = row['bytes'];
      // Most rows have no such column.
      if (!(value instanceof Uint8Array)) return;
      this.#bytes += value.length;
    }
  }

  async #startTurn(): Promise<void> {
    // The global one: the simulation replaces it.
    await new Promise((resolve) => setImmediate(resolve));
    this.#bytes = 0;
    this.#next = undefined;
  }
}
