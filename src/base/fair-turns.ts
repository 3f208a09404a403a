// Starts small tasks in batches, a bounded number in one turn of the event loop. A task that arrives while none waits
// starts at once. Of those that wait, the groups take turns, and in each group the owners.
import { setImmediate } from './clock.ts';
import { OwnerLanes } from './owner-lanes.ts';

export interface Lane {
  group: string;
  owner: string;
}

export class FairTurns {
  readonly #perTurn: number;
  /** The group to serve next comes first. */
  readonly #waiting = new Map<string, OwnerLanes<() => void>>();
  #started = 0;
  #isScheduled = false;

  constructor(perTurn: number) {
    this.#perTurn = perTurn;
  }

  /** `laneOf`: called if the task has to wait. `task` must not throw. */
  run(laneOf: () => Lane, task: () => void): void {
    this.#schedule();
    if (this.#waiting.size === 0 && this.#started < this.#perTurn) {
      this.#started += 1;
      task();
      return;
    }
    const { group, owner } = laneOf();
    const lanes = this.#waiting.get(group) ?? new OwnerLanes();
    this.#waiting.set(group, lanes);
    lanes.add(owner, task);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#started = 0;
      if (this.#waiting.size > 0) this.#startBatch();
    });
  }

  #startBatch(): void {
    this.#schedule();
    while (this.#started < this.#perTurn) {
      const task = this.#take();
      if (!task) return;
      this.#started += 1;
      task();
    }
  }

  /** The group goes to the end of the rotation. */
  #take(): (() => void) | undefined {
    const next = this.#waiting.entries().next().value;
    if (!next) return undefined;
    const [group, lanes] = next;
    this.#waiting.delete(group);
    const task = lanes.take();
    if (!lanes.isEmpty) this.#waiting.set(group, lanes);
    return task;
  }
}
