// Which turn each new job of an endpoint takes, so that the groups of a priority take turns: start-time fair queuing.
import type { StoredJob, TurnKey } from '../store.ts';
import type { JobChange } from './live-endpoint.ts';

/**
 * The turn of a group's next job: behind the group's last queued job, and not before the turn that is being
 * leased. So the first job of a group that had none waits for at most one job of each other group.
 */
export function chooseTurn(current: number, last: number | undefined): number {
  return last === undefined ? current : Math.max(current, last + 1);
}

/** The turn that is being leased after this job was: a turn is over when the first job of it is leased. */
export function advanceTurn(current: number, leased: number): number {
  return Math.max(current, leased + 1);
}

interface PriorityTurns {
  current: number;
  /** Last turn of the jobs without a group; -1: they have none that matters. */
  last: number;
  /** The job with the last turn left the queue otherwise than by a lease. */
  isStale: boolean;
}

const NONE = -1;

export class GroupTurns {
  readonly #groups: KnownGroups;
  readonly #priorities = new Map<number, PriorityTurns>();
  /** What the database had at the start is here. */
  isLoaded = false;
  /** The database lacks a change. */
  isDirty = false;
  /** A group that is not known has no queued job. */
  hasAllGroups = false;
  /** Knowledge about groups with an older number is stale. */
  #version = 0;

  constructor(groups: KnownGroups) {
    this.#groups = groups;
  }

  /** `text` as the database has it. */
  load(text: string | null): void {
    this.isLoaded = true;
    const stored: [number, number, number][] = text === null ? [] : JSON.parse(text);
    for (const [priority, current, last] of stored) {
      this.#priorities.set(priority, { current, last, isStale: false });
    }
  }

  /** For the database: `[priority, current turn, last turn of the jobs without a group]` of each priority, as JSON. */
  get text(): string {
    const all = [...this.#priorities].map(([priority, { current, last }]) => [
      priority,
      current,
      last,
    ]);
    return JSON.stringify(all);
  }

  /** Undefined: the database must be asked for the last turn. */
  next({ group, priority }: TurnKey): number | undefined {
    const turns = this.#open(priority);
    if (group === null) return turns.isStale ? undefined : chooseTurn(turns.current, turns.last);
    const known = this.#groups.find(this, nameOf(priority, group));
    if (known) {
      const matters = known.last >= turns.current;
      const isStale = known.isStale || known.version !== this.#version;
      return isStale && matters ? undefined : chooseTurn(turns.current, known.last);
    }
    return this.hasAllGroups ? turns.current : undefined;
  }

  /**
   * The database has returned the last turn of the queued jobs; null: none is queued, undefined: it did not
   * find one.
   */
  learn({ group, priority }: TurnKey, last: number | null | undefined): void {
    if (group !== null) {
      this.#note(priority, group, last ?? NONE);
      return;
    }
    const turns = this.#open(priority);
    if (last !== undefined) turns.last = last ?? NONE;
    turns.isStale = false;
  }

  /** The endpoint was removed. */
  forget(): void {
    this.#groups.forget(this);
  }

  /** No job of the endpoint is queued. */
  noteEmpty(): void {
    const all = [...this.#priorities.values()].filter(
      (turns) => turns.isStale || turns.last >= turns.current,
    );
    if (this.hasAllGroups && all.length === 0) return;
    for (const turns of all) Object.assign(turns, { last: NONE, isStale: false });
    this.#version++;
    this.hasAllGroups = true;
  }

  /** Takes the change of a job into account. */
  apply({ after, before }: JobChange): void {
    if (after?.status === 'IN_QUEUE') {
      if (after.turn > NONE && after.turn !== before?.turn) this.#enter(after);
    } else if (before?.status === 'IN_QUEUE') {
      if (after?.status === 'IN_PROGRESS') this.#advance(after);
      else this.#leave(before);
    }
  }

  #enter({ group, priority, turn }: StoredJob): void {
    if (group !== null) {
      this.#note(priority, group, turn);
      return;
    }
    const turns = this.#open(priority);
    turns.last = Math.max(turns.last, turn);
    this.isDirty = true;
  }

  #advance({ priority, turn }: StoredJob): void {
    const turns = this.#open(priority);
    if (turn < turns.current) return;
    turns.current = advanceTurn(turns.current, turn);
    this.isDirty = true;
  }

  #leave({ group, priority, turn }: StoredJob): void {
    const turns = this.#open(priority);
    if (turn < turns.current) return;
    const known = group === null ? turns : this.#groups.find(this, nameOf(priority, group));
    if (known?.last === turn) known.isStale = true;
  }

  #note(priority: number, group: string, last: number): void {
    const known = { last, isStale: false, version: this.#version };
    this.#groups.put(this, nameOf(priority, group), known);
  }

  #open(priority: number): PriorityTurns {
    let turns = this.#priorities.get(priority);
    if (!turns) {
      turns = { current: 0, last: NONE, isStale: false };
      this.#priorities.set(priority, turns);
    }
    return turns;
  }
}

function nameOf(priority: number, group: string): string {
  return `${priority} ${group}`;
}

/** Groups kept: about 200 bytes each. */
const MAX_ENTRIES = 50_000;
/** Share of these that may be too many for a moment: not each commit sorts the endpoints. */
const EXCESS = 0.1;

interface KnownGroup {
  /** Last turn of the group's jobs. */
  last: number;
  /** The job with the last turn left the queue otherwise than by a lease. */
  isStale: boolean;
  /** Number of the knowledge of the endpoint's turns. */
  version: number;
}

/** The last turns of the groups that submitted jobs recently, over all endpoints: a bounded number. */
export class KnownGroups {
  /** Of each endpoint, by name; the one that was put last is last. */
  readonly #owners = new Map<GroupTurns, Map<string, KnownGroup>>();
  readonly #maxEntries: number;
  #size = 0;

  constructor(maxEntries = MAX_ENTRIES) {
    this.#maxEntries = maxEntries;
  }

  find(owner: GroupTurns, name: string): KnownGroup | undefined {
    return this.#owners.get(owner)?.get(name);
  }

  put(owner: GroupTurns, name: string, group: KnownGroup): void {
    this.delete(owner, name);
    const groups = this.#owners.get(owner) ?? new Map<string, KnownGroup>();
    this.#owners.set(owner, groups.set(name, group));
    this.#size += 1;
  }

  delete(owner: GroupTurns, name: string): void {
    const groups = this.#owners.get(owner);
    if (!groups?.delete(name)) return;
    this.#size -= 1;
    if (groups.size === 0) this.#owners.delete(owner);
  }

  /** Its endpoint was removed. */
  forget(owner: GroupTurns): void {
    this.#size -= this.#owners.get(owner)?.size ?? 0;
    this.#owners.delete(owner);
  }

  /**
   * Between two commits: within one, the database may not have the last turn yet. The endpoints have equal shares, so
   * one with many groups takes none of the others'.
   */
  trim(): void {
    if (this.#size <= this.#maxEntries * (1 + EXCESS)) return;
    const smallestFirst = [...this.#owners].sort(([, a], [, b]) => a.size - b.size);
    let left = this.#maxEntries;
    for (const [index, [owner, { size }]] of smallestFirst.entries()) {
      const maxEntries = Math.min(size, Math.floor(left / (smallestFirst.length - index)));
      left -= maxEntries;
      if (maxEntries < size) this.#shorten(owner, size - maxEntries);
    }
  }

  /** Drops the groups that were put first. */
  #shorten(owner: GroupTurns, count: number): void {
    owner.hasAllGroups = false;
    for (const name of [...(this.#owners.get(owner)?.keys() ?? [])].slice(0, count)) {
      this.delete(owner, name);
    }
  }
}
