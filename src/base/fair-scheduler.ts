// Starts small tasks in batches, for a bounded time and a bounded number in one iteration of the event loop. A task that arrives
// while none waits starts at once. Of those that wait, the groups take turns, and in each group the owners: by the time
// that their tasks take, not by their number.
import { setImmediate } from './clock.ts';
import { SLICE_MS } from './slices.ts';

export interface Lane {
  group: string;
  owner: string;
}

/** Tasks of one iteration of the event loop: thousands may begin at once. */
const TASKS_PER_ITERATION = 64;
/** Loop time that each visit of the rotation pays for, ms: about that of the cheapest calls. */
const VISIT_MS = 0.05;

/**
 * The loop time that an owner owes after a visit that took `spentMs`. The rotation passes over owners that owe, which pays
 * for VISIT_MS. So owners whose tasks wait get the same time, and those of cheap tasks the same number.
 */
export function oweAfterVisit(owedMs: number, spentMs: number): number {
  return Math.max(0, owedMs + spentMs - VISIT_MS);
}

interface Entry<Tasks> {
  tasks: Tasks;
  owedMs: number;
}

/** What waits, by name, in rotation. */
class Rotation<Tasks extends { readonly length: number }> {
  readonly #create: () => Tasks;
  readonly #entries = new Map<string, Entry<Tasks>>();

  constructor(create: () => Tasks) {
    this.#create = create;
  }

  of(name: string): Tasks {
    const known = this.#entries.get(name);
    if (known) return known.tasks;
    const tasks = this.#create();
    this.#entries.set(name, { tasks, owedMs: 0 });
    return tasks;
  }

  /** The entry to serve. It goes to the end of the rotation. */
  next(): Entry<Tasks> | undefined {
    let left = this.#entries.size;
    // An entry that is put back is visited again.
    for (const [name, entry] of this.#entries) {
      this.#entries.delete(name);
      const isDone = entry.owedMs === 0 && entry.tasks.length === 0;
      if (!isDone) this.#entries.set(name, entry);
      if (!isDone && entry.owedMs === 0) return entry;
      entry.owedMs = oweAfterVisit(entry.owedMs, 0);
      left -= 1;
      if (left > 0) continue;
      this.#skipRounds();
      left = this.#entries.size;
    }
    return undefined;
  }

  /** Pays for the rounds in which nobody would be served, so that a call takes a few rounds, whatever all owe. */
  #skipRounds(): void {
    let leastMs = Number.POSITIVE_INFINITY;
    for (const { owedMs, tasks } of this.#entries.values()) {
      if (tasks.length > 0) leastMs = Math.min(leastMs, owedMs);
    }
    const paidMs = VISIT_MS * Math.floor(leastMs / VISIT_MS);
    for (const entry of this.#entries.values()) entry.owedMs = Math.max(0, entry.owedMs - paidMs);
  }

  clear(): void {
    this.#entries.clear();
  }
}

/** Owners with waiting tasks. */
class Group {
  readonly owners = new Rotation((): (() => void)[] => []);
  /** Number of tasks. */
  length = 0;
}

export class FairScheduler {
  readonly #perIteration: number;
  readonly #monotonic: () => number;
  readonly #groups = new Rotation(() => new Group());
  #waiting = 0;
  #started = 0;
  /** When this iteration of the event loop has had its share. */
  #endsAt = 0;
  #isScheduled = false;

  /** `perTurn`: tasks. `monotonic`: time that passes while code runs, ms. Default: that of the machine. */
  constructor(perIteration = TASKS_PER_ITERATION, monotonic = () => performance.now()) {
    this.#perIteration = perIteration;
    this.#monotonic = monotonic;
  }

  /** `laneOf`: called if the task has to wait. `task` must not throw; the promises that it settles are part of it. */
  run(laneOf: () => Lane, task: () => void): void {
    this.#schedule();
    if (this.#waiting === 0 && this.#mayStart()) {
      this.#started += 1;
      task();
      return;
    }
    const { group, owner } = laneOf();
    const lanes = this.#groups.of(group);
    lanes.owners.of(owner).push(task);
    lanes.length += 1;
    this.#waiting += 1;
  }

  /** Resolves when its turn comes; what then runs without a wait is counted. */
  take(laneOf: () => Lane): Promise<void> {
    return new Promise((resolve) => this.run(laneOf, resolve));
  }

  #mayStart(): boolean {
    const now = this.#monotonic();
    if (this.#started === 0) this.#endsAt = now + SLICE_MS;
    return this.#started < this.#perIteration && now < this.#endsAt;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#started = 0;
      if (this.#waiting > 0) this.#startBatch();
      // Owners owe only while others wait.
      else this.#groups.clear();
    });
  }

  /** Each task starts when the one before, with the promises that it has settled, is over. */
  #startBatch(): void {
    this.#schedule();
    if (!this.#mayStart()) return;
    const group = this.#groups.next();
    const owner = group?.tasks.owners.next();
    const task = owner?.tasks.shift();
    if (!group || !owner || !task) return;
    group.tasks.length -= 1;
    this.#waiting -= 1;
    this.#started += 1;
    const startedAt = this.#monotonic();
    task();
    queueMicrotask(() =>
      process.nextTick(() => {
        const spentMs = this.#monotonic() - startedAt;
        for (const entry of [group, owner]) entry.owedMs = oweAfterVisit(entry.owedMs, spentMs);
        this.#startBatch();
      }),
    );
  }
}
