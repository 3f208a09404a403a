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
  /** Over the active groups, those that wait or run: their weights, and these times what they have used. */
  #weights = 0;
  #weighted = 0;
  /** Over the runs: their GPUs, these times their start, and what their groups are charged for. */
  #gpus = 0;
  #starts = 0;
  #charged = 0;
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

  get isEmpty(): boolean {
    return this.groups.size === 0;
  }

  /** What a group has used that is served as it should be: the mean of the active groups, by weight. */
  virtualTime(now: number): number {
    if (this.#weights === 0) return this.#last;
    // Running jobs have used only what has passed.
    const ahead = this.#charged - (now * this.#gpus - this.#starts);
    return (this.#weighted - ahead) / this.#weights;
  }

  /** No group was active since the start: it goes on from here. */
  startAt(virtualTime: number): void {
    this.#last = Math.max(this.#last, virtualTime);
  }

  /** Expected run time of the group's next job, ms. */
  estimate({ meanMs = this.#meanMs ?? FIRST_ESTIMATE_MS }: GroupQueue): number {
    return Math.max(LEAST_MS, meanMs);
  }

  noteRun(queue: GroupQueue, ms: number): void {
    const mix = (mean: number | undefined, share: number) =>
      mean === undefined ? ms : mean + share * (ms - mean);
    queue.meanMs = mix(queue.meanMs, GROUP_SHARE);
    this.#meanMs = mix(this.#meanMs, ALL_SHARE);
  }

  /** Groups that had no ready jobs begin where the others are: they have saved nothing. */
  admit(now: number, note: (queue: GroupQueue, ms: number) => void): void {
    if (this.#joining.size === 0) return;
    const current = this.virtualTime(now);
    for (const queue of this.#joining) {
      const used = Math.max(queue.used, current);
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
    if (this.#weights === 0) this.#last = Math.max(this.#last, run.queue.used);
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
    const sign = this.#isActive(queue) ? 1 : 0;
    this.#count(queue, -sign);
    queue.used += ms / queue.weight;
    this.#count(queue, sign);
    this.#reorder(queue);
  }

  #wake(queue: GroupQueue, now: number): void {
    if (!this.#isActive(queue)) queue.used = Math.max(queue.used, this.virtualTime(now));
  }

  #charge({ chargedMs, gpus, queue, startedAt }: Run, sign: number): void {
    if (this.#isActive(queue)) this.#count(queue, -1);
    const ms = sign * gpus * chargedMs;
    queue.running += sign;
    queue.runningMs += ms;
    queue.used += ms / queue.weight;
    this.#gpus += sign * gpus;
    this.#starts += sign * gpus * startedAt;
    this.#charged += ms;
    if (this.#isActive(queue)) this.#count(queue, 1);
    this.#reorder(queue);
  }

  reweigh(queue: GroupQueue, weight: number): void {
    const sign = this.#isActive(queue) ? 1 : 0;
    this.#count(queue, -sign);
    // What has ended stays as it was counted.
    queue.used += queue.runningMs / weight - queue.runningMs / queue.weight;
    queue.weight = weight;
    this.#count(queue, sign);
    this.#reorder(queue);
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
    if (queue.running > 0) {
      this.#enter(queue);
      return;
    }
    queue.state = 'joining';
    this.#joining.add(queue);
  }

  #enter(queue: GroupQueue): void {
    if (!this.#isActive(queue)) this.#count(queue, 1);
    queue.state = 'waiting';
    queue.key = queue.used;
    queue.order = ++this.#order;
    this.#push(queue);
  }

  #leave(queue: GroupQueue, state: 'idle' | 'held'): void {
    const isActive = this.#isActive(queue);
    this.#joining.delete(queue);
    this.held.delete(queue);
    this.#drop(queue);
    queue.state = state;
    if (!isActive || this.#isActive(queue)) return;
    this.#count(queue, -1);
    if (this.#weights === 0) this.#last = Math.max(this.#last, queue.used);
  }

  #isActive(queue: GroupQueue): boolean {
    return queue.state === 'waiting' || queue.running > 0;
  }

  #count({ used, weight }: GroupQueue, sign: number): void {
    if (sign === 0) return;
    this.#weights += sign * weight;
    this.#weighted += sign * weight * used;
    if (this.#weights > 0) return;
    this.#weights = 0;
    this.#weighted = 0;
  }

  #reorder(queue: GroupQueue): void {
    queue.key = queue.used;
    if (queue.index < 0) return;
    this.#rise(queue.index);
    this.#sink(queue.index);
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

function isBefore(a: GroupQueue, b: GroupQueue): boolean {
  return a.key < b.key || (a.key === b.key && a.order < b.order);
}
