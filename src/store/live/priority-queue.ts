// The groups of one priority by what they have used of the GPUs: start-time fair queuing in GPU time. A group's virtual time
// is its GPU ms by its weight; the group with the lowest one is next.
import type { GroupQueue } from './group-queue.ts';

/** Expected run time while no job of the priority has ended, ms. */
const FIRST_ESTIMATE_MS = 1_000;
/** Shortest expected run time: groups alternate even if their jobs take no time. */
const LEAST_MS = 1;
/** Weight of one run in the mean of its group, and of all groups. */
const GROUP_SHARE = 1 / 8;
const ALL_SHARE = 1 / 32;

/** A running job, as its group is charged for it. */
export interface Run {
  queue: GroupQueue;
  gpus: number;
  startedAt: number;
  /** Run time that the group is charged for, ms. */
  chargedMs: number;
}

export class PriorityQueue {
  readonly priority: number;
  readonly groups = new Map<string, GroupQueue>();
  /** Heap of the groups that wait. */
  readonly #heap: GroupQueue[] = [];
  readonly #joining = new Set<GroupQueue>();
  readonly held = new Set<GroupQueue>();
  #order = 0;
  #meanMs: number | undefined;
  /** GPU ms of the longest run; forgotten over eight times as much. */
  #longest = FIRST_ESTIMATE_MS;
  /** The active groups: those that wait, and those that only run. */
  readonly #competing = new MeanUse();
  readonly #running = new MeanUse();
  /** Virtual time when the last group stopped to be active. */
  #last = 0;

  constructor(priority: number) {
    this.priority = priority;
  }

  get first(): GroupQueue | undefined {
    return this.#heap[0];
  }

  /** The groups that wait, the first ones near the front. */
  get waiting(): readonly GroupQueue[] {
    return this.#heap;
  }

  /** The groups that wait, the next one first. Each step takes O(log n). */
  *inOrder(): Generator<GroupQueue> {
    const front: GroupQueue[] = this.#heap.slice(0, 1);
    for (let next = front.shift(); next; next = front.shift()) {
      yield next;
      for (const index of [2 * next.index + 1, 2 * next.index + 2]) {
        const below = this.#heap[index];
        if (below) insert(front, below);
      }
    }
  }

  get isEmpty(): boolean {
    return this.groups.size === 0;
  }

  /**
   * What a group has used that is served as it should be: the mean of the groups that wait. Others may use less than their
   * share, and a group that begins at their use would take all.
   */
  virtualTime(now: number): number {
    return this.#competing.at(now) ?? this.#running.at(now) ?? this.#last;
  }

  /** No group was active since the start: it goes on from here. */
  startAt(virtualTime: number): void {
    this.#last = Math.max(this.#last, virtualTime);
  }

  /** Expected run time of the group's next job, ms. */
  estimate({ meanMs = this.#meanMs ?? FIRST_ESTIMATE_MS }: GroupQueue): number {
    return Math.max(LEAST_MS, meanMs);
  }

  noteRun(queue: GroupQueue, gpus: number, ms: number): void {
    const mix = (mean: number | undefined, share: number) =>
      mean === undefined ? ms : mean + share * (ms - mean);
    queue.meanMs = mix(queue.meanMs, GROUP_SHARE);
    this.#meanMs = mix(this.#meanMs, ALL_SHARE);
    this.#longest -= Math.min(this.#longest, gpus * ms) / 8;
  }

  /**
   * Groups that had no ready jobs begin where the others are: they have saved nothing. One that runs may be behind by the
   * long jobs of the others, which ran meanwhile.
   */
  admit(now: number, note: (queue: GroupQueue, ms: number) => void): void {
    if (this.#joining.size === 0) return;
    const current = this.virtualTime(now);
    for (const queue of this.#joining) {
      const behind = queue.running > 0 ? (this.#longest * (queue.running + 1)) / queue.weight : 0;
      const used = Math.max(queue.used, current - behind);
      if (used !== queue.used) note(queue, (used - queue.used) * queue.weight);
      queue.used = used;
      this.#enter(queue);
    }
    this.#joining.clear();
  }

  /** The group has ready jobs, or no longer. */
  settle(queue: GroupQueue): void {
    if (!queue.mayHaveJobs) this.#leave(queue, 'idle');
    else if (queue.state === 'idle') this.#arrive(queue);
  }

  /** After a start: a group with ready jobs goes on from what its row has, or else from where all groups were. */
  resume(queue: GroupQueue): void {
    if (!queue.hasRow) queue.used = Math.max(queue.used, this.#last);
    this.#enter(queue);
  }

  /** It has no capacity. */
  hold(queue: GroupQueue): void {
    this.#leave(queue, 'held');
    this.held.add(queue);
  }

  /** It may have capacity. */
  release(queue: GroupQueue): void {
    if (this.held.delete(queue)) this.#arrive(queue);
  }

  /** A job of the group runs; `now`: time of the last search. */
  begin(run: Run, now: number): void {
    this.#wake(run.queue, now);
    this.#charge(run, 1);
  }

  /** The run has ended after so long, ms. */
  end(run: Run, ms: number, now: number): void {
    this.correct(run.queue, run.gpus * ms, now);
    this.#charge(run, -1);
  }

  /** The run takes longer than its group is charged for. */
  extend(run: Run, chargedMs: number): void {
    this.#charge(run, -1);
    run.chargedMs = chargedMs;
    this.#charge(run, 1);
  }

  /** The group has used so much more GPU ms. */
  correct(queue: GroupQueue, ms: number, now: number): void {
    this.#wake(queue, now);
    this.#change(queue, () => {
      queue.used += ms / queue.weight;
    });
  }

  #wake(queue: GroupQueue, now: number): void {
    if (!this.#meanOf(queue)) queue.used = Math.max(queue.used, this.virtualTime(now));
  }

  #charge({ chargedMs, gpus, queue, startedAt }: Run, sign: number): void {
    const ms = gpus * chargedMs;
    if (sign > 0) this.#longest = Math.max(this.#longest, ms);
    this.#change(queue, () => {
      queue.running += sign;
      queue.runningMs += sign * ms;
      queue.runningGpus += sign * gpus;
      queue.runningSince += sign * gpus * startedAt;
      queue.used += (sign * ms) / queue.weight;
    });
  }

  reweigh(queue: GroupQueue, weight: number): void {
    this.#change(queue, () => {
      // What has ended stays as it was counted.
      queue.used += queue.runningMs / weight - queue.runningMs / queue.weight;
      queue.weight = weight;
    });
  }

  /** For the search under way: its next jobs come after those of groups that have used less. */
  postpone(queue: GroupQueue, used: number): void {
    queue.key = used;
    this.#sink(queue.index);
  }

  /** For the search under way: it has no more jobs. */
  setAside(queue: GroupQueue): void {
    this.#drop(queue);
  }

  /** Undoes `postpone` and `setAside`. */
  restore(queue: GroupQueue): void {
    queue.taken = 0;
    queue.key = queue.used;
    if (queue.state !== 'waiting') return;
    if (queue.index < 0) this.#push(queue);
    else this.#rise(queue.index);
  }

  remove(queue: GroupQueue): void {
    this.#leave(queue, 'idle');
    this.groups.delete(queue.group);
  }

  #arrive(queue: GroupQueue): void {
    queue.state = 'joining';
    this.#joining.add(queue);
  }

  #enter(queue: GroupQueue): void {
    this.#change(queue, () => {
      queue.state = 'waiting';
      queue.order = ++this.#order;
    });
    this.#push(queue);
  }

  #leave(queue: GroupQueue, state: 'idle' | 'held'): void {
    this.#joining.delete(queue);
    this.held.delete(queue);
    this.#drop(queue);
    this.#change(queue, () => {
      queue.state = state;
    });
  }

  /** The mean that the group is part of. */
  #meanOf(queue: GroupQueue): MeanUse | undefined {
    if (queue.state === 'waiting') return this.#competing;
    return queue.running > 0 ? this.#running : undefined;
  }

  #change(queue: GroupQueue, act: () => void): void {
    const before = this.#meanOf(queue);
    before?.count(queue, -1);
    act();
    const after = this.#meanOf(queue);
    after?.count(queue, 1);
    queue.key = queue.used;
    if (queue.index >= 0) {
      this.#rise(queue.index);
      this.#sink(queue.index);
    }
    if (!before || after || !this.#competing.isEmpty || !this.#running.isEmpty) return;
    this.#last = Math.max(this.#last, queue.used);
  }

  #push(queue: GroupQueue): void {
    queue.index = this.#heap.push(queue) - 1;
    this.#rise(queue.index);
  }

  #drop(queue: GroupQueue): void {
    const { index } = queue;
    if (index < 0) return;
    queue.index = -1;
    const last = this.#heap.pop();
    if (!last || last === queue) return;
    this.#put(last, index);
    this.#rise(index);
    this.#sink(last.index);
  }

  #rise(start: number): void {
    const queue = this.#heap[start];
    if (!queue) return;
    let index = start;
    while (index > 0) {
      const above = this.#heap[(index - 1) >> 1];
      if (!above || !isBefore(queue, above)) break;
      const { index: next } = above;
      this.#put(above, index);
      index = next;
    }
    this.#put(queue, index);
  }

  #sink(start: number): void {
    const queue = this.#heap[start];
    if (!queue) return;
    let index = start;
    for (;;) {
      const [left, right] = [this.#heap[2 * index + 1], this.#heap[2 * index + 2]];
      const below = left && right && isBefore(right, left) ? right : left;
      if (!below || !isBefore(below, queue)) break;
      const { index: next } = below;
      this.#put(below, index);
      index = next;
    }
    this.#put(queue, index);
  }

  #put(queue: GroupQueue, index: number): void {
    this.#heap[index] = queue;
    queue.index = index;
  }
}

/** Of groups by their weights: what they have used so far. */
class MeanUse {
  #weights = 0;
  #weighted = 0;
  /** Of their runs: what is charged, the GPUs, and these times the start. */
  #charged = 0;
  #gpus = 0;
  #since = 0;

  get isEmpty(): boolean {
    return this.#weights === 0;
  }

  count(queue: GroupQueue, sign: number): void {
    const { runningGpus, runningMs, runningSince, used, weight } = queue;
    this.#weights += sign * weight;
    this.#weighted += sign * weight * used;
    this.#charged += sign * runningMs;
    this.#gpus += sign * runningGpus;
    this.#since += sign * runningSince;
    // Sums of rounded numbers do not return to zero.
    if (this.isEmpty) [this.#weighted, this.#charged, this.#gpus, this.#since] = [0, 0, 0, 0];
  }

  /** Undefined: it has no group. */
  at(now: number): number | undefined {
    if (this.isEmpty) return undefined;
    // Running jobs have used only what has passed.
    const ahead = this.#charged - (now * this.#gpus - this.#since);
    return (this.#weighted - ahead) / this.#weights;
  }
}

function isBefore(a: GroupQueue, b: GroupQueue): boolean {
  return a.key < b.key || (a.key === b.key && a.order < b.order);
}

/** Into the sorted list. */
function insert(sorted: GroupQueue[], queue: GroupQueue): void {
  const at = sorted.findLastIndex((other) => isBefore(other, queue));
  sorted.splice(at + 1, 0, queue);
}
