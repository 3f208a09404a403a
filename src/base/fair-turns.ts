// Starts small tasks in batches, a bounded number in one turn of the event loop, taking one of each
// owner at a time. A task that arrives while none waits starts at once.
import { OwnerLanes } from './owner-lanes.ts';

export class FairTurns {
  readonly #perTurn: number;
  readonly #waiting = new OwnerLanes<() => void>();
  #started = 0;
  #isScheduled = false;

  constructor(perTurn: number) {
    this.#perTurn = perTurn;
  }

  /** `task` must not throw. */
  run(owner: string, task: () => void): void {
    this.#schedule();
    if (this.#waiting.isEmpty && this.#started < this.#perTurn) {
      this.#started += 1;
      task();
      return;
    }
    this.#waiting.add(owner, task);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#started = 0;
      if (!this.#waiting.isEmpty) this.#startBatch();
    });
  }

  #startBatch(): void {
    this.#schedule();
    while (this.#started < this.#perTurn) {
      const task = this.#waiting.take();
      if (!task) return;
      this.#started += 1;
      task();
    }
  }
}
