// Starts small tasks in batches, a bounded number in one turn of the event loop, taking one of each
// owner at a time. A task that arrives while none waits starts at once.

export class FairTurns {
  readonly #perTurn: number;
  /** Tasks of each owner, in the order of arrival; the owner to serve next comes first. */
  readonly #lanes = new Map<string, (() => void)[]>();
  #started = 0;
  #isScheduled = false;

  constructor(perTurn: number) {
    this.#perTurn = perTurn;
  }

  /** `task` must not throw. */
  run(owner: string, task: () => void): void {
    this.#schedule();
    if (this.#lanes.size === 0 && this.#started < this.#perTurn) {
      this.#started += 1;
      task();
      return;
    }
    const lane = this.#lanes.get(owner);
    if (lane) lane.push(task);
    else this.#lanes.set(owner, [task]);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#started = 0;
      if (this.#lanes.size > 0) this.#startBatch();
    });
  }

  #startBatch(): void {
    this.#schedule();
    while (this.#started < this.#perTurn) {
      const next = this.#lanes.entries().next().value;
      if (!next) return;
      const [owner, lane] = next;
      this.#lanes.delete(owner);
      const task = lane.shift();
      if (lane.length > 0) this.#lanes.set(owner, lane);
      this.#started += 1;
      task?.();
    }
  }
}
