// The ready jobs of one endpoint, by priority and group: which of them are next, and what must be read for that.

import { DueHeap } from '../../base/due-heap.ts';
import { isTerminal } from '../../wire/job/job.ts';
import { NO_GROUP, type StoredJob } from '../stored-records.ts';
import {
  type GroupCapacity,
  GroupQueue,
  groupOf,
  isReady,
  type GroupQueue as Queue,
} from './group-queue.ts';
import { holdsValidLease } from './leased-jobs.ts';
import { PriorityQueue, type Run } from './priority-queue.ts';

/** Groups whose names one query returns. */
export const GROUPS_AT_ONCE = 1_024;
/** Groups whose first jobs one query returns. */
const QUEUES_AT_ONCE = 64;
/** Among how many of those that wait, groups without jobs in memory are looked for. */
const LOOKED_AT = 128;
/** Groups without ready or running jobs that have used more than the others: so many stay. */
const MAX_IDLE = 10_000;
const FEW_IDLE = 64;
/** A run that takes longer than expected is expected to take this share longer, and at least so long, ms. */
const LONGER = 1 / 8;
const LEAST_LONGER_MS = 1_000;
/** The row of a group is written when it has used so much since then, GPU ms. */
const UNSAVED_MS = 1_000;

/** What must be read. `start`: which priorities have ready jobs, and what groups have used. */
export type Need =
  | { what: 'start' }
  | { what: 'groups'; priority: number; after: string }
  | { what: 'jobs'; wanted: readonly WantedJobs[]; limit: number };

/** The first jobs of a group, or those from a place on. */
export interface WantedJobs {
  priority: number;
  group: string;
  from: number | undefined;
}

/** What a group has used, as its row has it. */
export interface GroupUse {
  priority: number;
  group: string;
  /** GPU ms by its weight, without running jobs. */
  used: number;
  /** Virtual time when the row was written. */
  at: number;
  meanMs?: number | undefined;
}

export interface Search {
  limit: number;
  now: number;
  /** Undefined: no group has a limit. */
  capacity: GroupCapacity | undefined;
  /** Ready jobs to read at once, at most. */
  windowJobs: number;
  /** Ready jobs of the endpoint that may stay in memory. */
  shareJobs: number;
}

export interface Selection {
  jobs: StoredJob[];
  /** Groups have jobs, but no capacity. */
  isBlocked: boolean;
  /** With it, there may be more jobs. */
  need: Need | undefined;
}

interface EndedRun extends Pick<GroupUse, 'priority' | 'group'> {
  gpus: number;
  ms: number;
}

/** Names of groups by priority that are yet to be read, from the group behind the last one on. */
type Unread = Map<number, string>;

export class ReadyGroups {
  /** By descending priority. */
  readonly #queues: PriorityQueue[] = [];
  /** Undefined: not even the priorities are known. */
  #unread: Unread | undefined;
  readonly #runs = new Map<string, Run>();
  /** Runs by when they take longer than expected. */
  readonly #overdue = new DueHeap<Run>();
  /** Runs that have ended since the start, while not all groups are known. */
  #missed: EndedRun[] = [];
  /** Groups without ready or running jobs. */
  #idle = new Set<Queue>();
  #mostIdle = FEW_IDLE;
  /** Groups other than that of the jobs without one. */
  groupCount = 0;
  /** Running jobs are to be counted: there were no groups before. */
  #lacksRuns = true;
  #weights: Readonly<Record<string, number>> = {};
  #now = 0;
  /** Number of jobs in memory. */
  size = 0;
  /** Groups whose jobs have changed since the last trim. */
  readonly #changed = new Set<Queue>();
  readonly #unsaved = new Set<Queue>();
  /** Groups whose rows are to be removed. */
  readonly #gone = new Map<string, Pick<GroupUse, 'priority' | 'group'>>();

  get isLoaded(): boolean {
    return this.#unread?.size === 0;
  }

  /** Only with groups does it matter what jobs use. */
  get isShared(): boolean {
    return this.groupCount > 0;
  }

  /** Whether `addRuns` must be called with all running jobs. */
  get lacksRuns(): boolean {
    return this.isShared && this.#lacksRuns;
  }

  has(job: StoredJob): boolean {
    return isReady(job) && (this.#find(job.priority, groupOf(job))?.has(job) ?? false);
  }

  /** The database has returned the priorities with ready jobs, and what groups have used. */
  start(priorities: readonly number[], uses: readonly GroupUse[]): void {
    this.#unread = new Map(priorities.map((priority) => [priority, '']));
    for (const { at, group, meanMs, priority, used } of uses) {
      const all = this.#openPriority(priority);
      all.startAt(at);
      const queue = this.#open(priority, group);
      queue.hasRow = true;
      queue.used = Math.max(used, queue.used);
      queue.meanMs = meanMs;
      if (!queue.mayHaveJobs) this.#idle.add(queue);
    }
  }

  /** The database has returned the names of the next groups of the priority. */
  addGroups(priority: number, groups: readonly string[]): void {
    const all = this.#openPriority(priority);
    for (const group of groups) {
      const queue = this.#open(priority, group);
      if (queue.state === 'idle') all.resume(queue);
    }
    const last = groups.at(-1);
    if (last !== undefined && groups.length >= GROUPS_AT_ONCE) this.#unread?.set(priority, last);
    else this.#unread?.delete(priority);
    if (this.#unread?.has(priority)) return;
    // The others, which have a row, have no ready jobs.
    for (const queue of this.#openPriority(priority).groups.values()) {
      if (queue.state === 'idle') this.#settle(queue.noteAll());
    }
  }

  /** What the database has returned for a need. @returns the added jobs */
  addJobs(
    { limit, wanted }: Extract<Need, { what: 'jobs' }>,
    jobs: readonly StoredJob[],
  ): StoredJob[] {
    const byQueue = Map.groupBy(jobs, (job) => this.#find(job.priority, groupOf(job)));
    return wanted.flatMap(({ group, priority }) => {
      const queue = this.#find(priority, group);
      if (!queue) return [];
      const own = byQueue.get(queue) ?? [];
      const added = queue.extend(own, { isAll: own.length < limit });
      this.size += added.length;
      this.#settle(queue);
      return added;
    });
  }

  /** All running jobs of the endpoint. */
  addRuns(jobs: Iterable<StoredJob>): void {
    this.#lacksRuns = false;
    for (const job of jobs) if (holdsValidLease(job)) this.#begin(job, job.startedAt);
  }

  set weights(weights: Readonly<Record<string, number>>) {
    if (weights === this.#weights) return;
    const before = this.#weights;
    this.#weights = weights;
    for (const group of new Set([...Object.keys(before), ...Object.keys(weights)])) {
      for (const all of this.#queues) {
        const queue = all.groups.get(group);
        if (queue) all.reweigh(queue, this.#weightOf(group));
      }
    }
  }

  /** Callers choose the names: `constructor` is one, too. */
  #weightOf(group: string): number {
    return Object.hasOwn(this.#weights, group) ? (this.#weights[group] ?? 1) : 1;
  }

  /** Takes the change of a job into account. */
  replace(before: StoredJob | undefined, after: StoredJob | undefined): void {
    const was = before !== undefined && holdsValidLease(before);
    const is = after !== undefined && holdsValidLease(after);
    // First: the group of its only ready job has not been idle.
    if (is && !was) this.#begin(after, before?.lease?.lost ? before.lease.until : after.startedAt);
    if (before && isReady(before)) this.#remove(before);
    if (after && isReady(after)) this.#add(after);
    if (was && !is) this.#end(before, after);
  }

  /** The group has more capacity. */
  noteRoom(group: string): void {
    for (const all of this.#queues) {
      const queue = all.groups.get(group);
      if (queue) all.release(queue);
    }
  }

  /** All groups have another capacity. */
  noteRooms(): void {
    for (const all of this.#queues) for (const queue of [...all.held]) all.release(queue);
  }

  /** The jobs that are next. */
  select(search: Search): Selection {
    const need = this.#findUnread();
    if (need) return { jobs: [], isBlocked: false, need };
    this.#now = Math.max(this.#now, search.now);
    if (this.#missed.length > 0) this.#countMissed();
    this.#extendRuns();
    const touched: Queue[] = [];
    try {
      return this.#select(search, touched);
    } finally {
      for (const queue of touched) this.#openPriority(queue.priority).restore(queue);
      this.#pruneIdle();
    }
  }

  #select(search: Search, touched: Queue[]): Selection {
    const found: Selection = { jobs: [], isBlocked: false, need: undefined };
    const leased = new Map<string, number>();
    for (const all of this.#queues) {
      all.admit(this.#now, (queue, ms) => queue.hasRow && this.#noteUse(queue, ms));
      for (;;) {
        if (found.jobs.length === search.limit) break;
        const queue = all.first;
        if (!queue) break;
        const count = leased.get(queue.group) ?? 0;
        if (search.capacity && search.capacity(queue.group) <= count) {
          // Held only by what runs: of those that the search has found, the caller may take none.
          if (count > 0) this.#setAside(all, queue, touched);
          else all.hold(queue);
          found.isBlocked = true;
          continue;
        }
        const job = queue.jobs[queue.taken];
        if (!job && !queue.hasAll) return { ...found, need: this.#needJobs(all, search, found) };
        if (!job) {
          this.#setAside(all, queue, touched);
          continue;
        }
        if (queue.taken === 0) touched.push(queue);
        queue.taken += 1;
        found.jobs.push(job);
        if (search.capacity) leased.set(queue.group, count + 1);
        if (all.waiting.length === 1) continue;
        all.postpone(queue, queue.key + all.estimate(queue) / queue.weight);
      }
      found.isBlocked ||= all.held.size > 0;
    }
    return found;
  }

  #setAside(all: PriorityQueue, queue: Queue, touched: Queue[]): void {
    all.setAside(queue);
    if (queue.taken === 0) touched.push(queue);
  }

  #findUnread(): Need | undefined {
    if (!this.#unread) return { what: 'start' };
    for (const [priority, after] of this.#unread) return { what: 'groups', priority, after };
    return undefined;
  }

  /** The jobs of the first group, and of others that are next and have none in memory. */
  #needJobs(
    all: PriorityQueue,
    { limit, shareJobs, windowJobs }: Search,
    { jobs }: Selection,
  ): Need {
    const wanted = all
      .inOrder()
      .take(LOOKED_AT)
      .filter((queue) => !queue.hasAll && queue.jobs.length <= queue.taken)
      .take(QUEUES_AT_ONCE)
      .toArray();
    const most = Math.max(2, Math.floor(shareJobs / 2 / all.waiting.length));
    const count = Math.ceil(Math.max(windowJobs, limit - jobs.length) / wanted.length);
    return {
      what: 'jobs',
      wanted: wanted.map(({ from, group, priority }) => ({ priority, group, from })),
      // The first one is the last one that is known, if that is still queued.
      limit: Math.max(Math.min(count, most), all.first?.nextRead ?? 1) + 1,
    };
  }

  /** The jobs that are dropped, so that about `kept` stay: first those of groups that are not next. */
  trim(kept: number): StoredJob[] {
    const dropped: StoredJob[] = [];
    for (const all of this.#queues.toReversed()) {
      for (const queue of [...all.held, ...all.waiting.toReversed()]) {
        if (this.size <= kept) return dropped;
        dropped.push(...this.#shorten(queue, Math.max(0, queue.jobs.length - (this.size - kept))));
      }
      for (const queue of all.groups.values()) {
        if (this.size <= kept) return dropped;
        dropped.push(...this.#shorten(queue, 0));
      }
    }
    return dropped;
  }

  /** Of groups that have changed and have more than `most` jobs in memory, `kept` stay. @returns the others */
  trimChanged(most: number, kept: number): StoredJob[] {
    this.#pruneIdle();
    if (this.#changed.size === 0) return [];
    const dropped: StoredJob[] = [];
    for (const queue of this.#changed) {
      if (queue.jobs.length > most) dropped.push(...this.#shorten(queue, kept));
    }
    this.#changed.clear();
    return dropped;
  }

  #shorten(queue: Queue, kept: number): StoredJob[] {
    const dropped = queue.trim(kept);
    this.size -= dropped.length;
    return dropped;
  }

  /** What the rows of the groups lack, once. */
  takeUnsaved(): { changed: GroupUse[]; gone: Pick<GroupUse, 'priority' | 'group'>[] } {
    const changed = [...this.#unsaved].map((queue): GroupUse => {
      const { group, meanMs, priority, runningMs, used, weight } = queue;
      queue.unsavedMs = 0;
      queue.hasRow = true;
      const at = Math.round(this.#openPriority(priority).virtualTime(this.#now));
      const ms = meanMs === undefined ? undefined : Math.round(meanMs);
      return { priority, group, used: Math.round(used - runningMs / weight), at, meanMs: ms };
    });
    const gone = [...this.#gone.values()];
    this.#unsaved.clear();
    this.#gone.clear();
    return { changed, gone };
  }

  get hasUnsaved(): boolean {
    return this.#unsaved.size > 0 || this.#gone.size > 0;
  }

  #find(priority: number, group: string): Queue | undefined {
    return this.#queues.find((all) => all.priority === priority)?.groups.get(group);
  }

  #openPriority(priority: number): PriorityQueue {
    const at = this.#queues.findIndex((all) => all.priority <= priority);
    const known = this.#queues[at];
    if (known?.priority === priority) return known;
    const added = new PriorityQueue(priority);
    this.#queues.splice(at < 0 ? this.#queues.length : at, 0, added);
    return added;
  }

  /** A new one has no ready jobs, unless the names of the groups are yet to be read. */
  #open(priority: number, group: string): Queue {
    const all = this.#openPriority(priority);
    const known = all.groups.get(group);
    if (known) return known;
    const hasAll = !this.#unread?.has(priority);
    const queue = new GroupQueue(priority, group, { hasAll });
    queue.weight = this.#weightOf(group);
    all.groups.set(group, queue);
    queue.hasRow = this.#gone.delete(nameOf(queue));
    if (group !== NO_GROUP) this.groupCount += 1;
    return queue;
  }

  #add(job: StoredJob): void {
    // The groups of the database will be read.
    if (!this.#unread) return;
    const queue = this.#open(job.priority, groupOf(job));
    if (queue.add(job)) this.size += 1;
    this.#settle(queue);
  }

  #remove(job: StoredJob): void {
    const queue = this.#find(job.priority, groupOf(job));
    if (!queue?.remove(job)) return;
    this.size -= 1;
    this.#settle(queue);
  }

  #settle(queue: Queue): void {
    this.#openPriority(queue.priority).settle(queue);
    this.#changed.add(queue);
    if (queue.mayHaveJobs || queue.running > 0) this.#idle.delete(queue);
    else this.#idle.add(queue);
  }

  #begin(job: StoredJob, startedAt: number | null): void {
    if (!this.isShared || this.#lacksRuns || this.#runs.has(job.id)) return;
    const queue = this.#open(job.priority, groupOf(job));
    const all = this.#openPriority(job.priority);
    const chargedMs = all.estimate(queue);
    const run = { queue, gpus: job.lease?.gpus ?? 1, startedAt: startedAt ?? this.#now, chargedMs };
    this.#runs.set(job.id, run);
    this.#overdue.set(run, run.startedAt + chargedMs);
    all.begin(run, this.#now);
    this.#idle.delete(queue);
  }

  #end(before: StoredJob, after: StoredJob | undefined): void {
    const { priority } = before;
    const run = this.#runs.get(before.id);
    const gpus = before.lease?.gpus ?? 1;
    const ms = findRunMs(before, after) ?? run?.chargedMs ?? 0;
    // Before the first search after a start.
    if (!this.isLoaded) this.#missed.push({ priority, group: groupOf(before), gpus, ms });
    else if (this.isShared) this.#countRun({ priority, group: groupOf(before), gpus, ms }, run);
    this.#runs.delete(before.id);
    if (run) this.#overdue.delete(run);
  }

  #countRun({ gpus, group, ms, priority }: EndedRun, run?: Run): void {
    const queue = this.#open(priority, group);
    const all = this.#openPriority(priority);
    if (run) all.end(run, ms, this.#now);
    else all.correct(queue, gpus * ms, this.#now);
    all.noteRun(queue, gpus, ms);
    this.#noteUse(queue, gpus * ms);
    this.#settle(queue);
  }

  #countMissed(): void {
    if (this.isShared) for (const run of this.#missed) this.#countRun(run);
    this.#missed = [];
  }

  #extendRuns(): void {
    while (this.#overdue.firstAt <= this.#now) {
      for (const run of this.#overdue.list(this.#now, LOOKED_AT)) {
        const ms = Math.max(0, this.#now - run.startedAt);
        const chargedMs = ms + Math.max(LEAST_LONGER_MS, ms * LONGER);
        this.#openPriority(run.queue.priority).extend(run, chargedMs);
        this.#overdue.set(run, run.startedAt + chargedMs);
      }
    }
  }

  #noteUse(queue: Queue, ms: number): void {
    queue.unsavedMs += ms;
    if (queue.unsavedMs >= UNSAVED_MS) this.#unsaved.add(queue);
  }

  /** A group that is where the others are, or behind them, is as good as a new one. */
  #pruneIdle(): void {
    if (this.#idle.size <= this.#mostIdle) return;
    const kept: Queue[] = [];
    for (const queue of this.#idle) {
      const all = this.#openPriority(queue.priority);
      if (queue.used > all.virtualTime(this.#now)) kept.push(queue);
      else this.#forget(all, queue);
    }
    if (kept.length > MAX_IDLE) {
      kept.sort((a, b) => b.used - a.used);
      for (const queue of kept.splice(MAX_IDLE))
        this.#forget(this.#openPriority(queue.priority), queue);
    }
    this.#idle = new Set(kept);
    // Not each search looks at all of them.
    this.#mostIdle = 2 * kept.length + FEW_IDLE;
  }

  #forget(all: PriorityQueue, queue: Queue): void {
    all.remove(queue);
    this.#changed.delete(queue);
    this.#unsaved.delete(queue);
    if (queue.hasRow)
      this.#gone.set(nameOf(queue), { priority: queue.priority, group: queue.group });
    if (queue.group !== NO_GROUP) this.groupCount -= 1;
    if (all.isEmpty) this.#queues.splice(this.#queues.indexOf(all), 1);
    if (!this.isShared) this.#forgetRuns();
  }

  /** No group is left: nothing of what jobs use is counted. */
  #forgetRuns(): void {
    for (const run of this.#runs.values()) {
      this.#overdue.delete(run);
      this.#openPriority(run.queue.priority).end(run, run.chargedMs, this.#now);
    }
    this.#runs.clear();
    this.#lacksRuns = true;
  }
}

/** How long the attempt that this change ends has run, ms; undefined: unknown. */
function findRunMs(before: StoredJob, after: StoredJob | undefined): number | undefined {
  const { startedAt } = before;
  if (!after || startedAt === null) return undefined;
  if (after.executionMs !== null && before.executionMs === null) return after.executionMs;
  const lostAt = after.lease?.lost ? after.lease.until : Number.POSITIVE_INFINITY;
  const endedAt = isTerminal(after.status) ? after.endedAt : after.queuedAt;
  return Math.max(0, Math.min(endedAt ?? startedAt, lostAt) - startedAt - after.suspendedMs);
}

function nameOf({ group, priority }: Pick<GroupUse, 'priority' | 'group'>): string {
  return `${priority}/${group}`;
}
