// Bounds what one turn of the event loop reads from the store: reads that were asked for together would
// otherwise run one right after the other, and nothing else would.
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Row } from './store.ts';

/** Some 10 ms of reading. The read that reaches it is the last one of its turn. */
const TURN_BYTES = 4 * 1_048_576;

export class ReadTurns {
  #bytes = 0;
  #next: Promise<void> | undefined;

  /** Enough was read since the last wait. */
  get isOver(): boolean {
    return this.#bytes >= TURN_BYTES;
  }

  /** Whoever waited asks `isOver` again, and reads without a further wait. */
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
    await nextTurn();
    this.#bytes = 0;
    this.#next = undefined;
  }
}
