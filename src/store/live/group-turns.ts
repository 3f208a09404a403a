// Which turn each new job of an endpoint takes, so that the groups of a priority take turns: start-time fair queuing.
import type { StoredJob, TurnKey } from '../store.ts';
import type { JobChange } from './counts.ts';
import type { KnownGroups } from './known-groups.ts';

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

/** One priority. */
interface PriorityTurns {
  current: number;
  /** Last turn of the jobs without a group; -1: they have none that matters. */
  last: number;
  /** The job with the last turn left the queue otherwise than by a lease. */
  isStale: boolean;
}

const NONE = -1;
const nothing = () => {};

export class GroupTurns {
  readonly #groups: KnownGroups;
  readonly #priorities = new Map<number, PriorityTurns>();
  /** What the database had at the start is here. */
  isLoaded = false;
  /** The database lacks a change. */
  isDirty = false;
  /** A group that is not known has no queued job. */
  hasAllGroups = false;
  /** What is known of groups with an older number is stale. */
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
   * find one. @returns how that is undone
   */
  learn({ group, priority }: TurnKey, last: number | null | undefined): () => void {
    const turns = this.#open(priority);
    if (group !== null) return this.#note(priority, group, last ?? NONE);
    const { isStale, last: before } = turns;
    if (last !== undefined) turns.last = last ?? NONE;
    turns.isStale = false;
    return () => {
      turns.last = before;
      turns.isStale = isStale;
    };
  }

  /** The endpoint was removed. */
  forget(): void {
    this.#groups.forget(this);
  }

  /** No job of the endpoint is queued. @returns how that is undone */
  noteEmpty(): () => void {
    const all = [...this.#priorities.values()].filter(
      (turns) => turns.isStale || turns.last >= turns.current,
    );
    if (this.hasAllGroups && all.length === 0) return nothing;
    const undo = [...all.map(restore), this.#staleAll(), this.#setHasAll(true)];
    for (const turns of all) Object.assign(turns, { last: NONE, isStale: false });
    return () => {
      for (const each of undo) each();
    };
  }

  /** Takes the change of a job into account. @returns how that is undone */
  apply({ after, before }: JobChange): () => void {
    if (after?.status === 'IN_QUEUE') {
      const isNew = after.turn > NONE && after.turn !== before?.turn;
      return isNew ? this.#enter(after) : nothing;
    }
    if (before?.status !== 'IN_QUEUE') return nothing;
    return after?.status === 'IN_PROGRESS' ? this.#advance(after) : this.#leave(before);
  }

  #enter({ group, priority, turn }: StoredJob): () => void {
    if (group !== null) return this.#note(priority, group, turn);
    const turns = this.#open(priority);
    const before = turns.last;
    turns.last = Math.max(before, turn);
    this.isDirty = true;
    return () => {
      turns.last = before;
    };
  }

  #advance({ priority, turn }: StoredJob): () => void {
    const turns = this.#open(priority);
    const before = turns.current;
    if (turn < before) return nothing;
    turns.current = advanceTurn(before, turn);
    this.isDirty = true;
    return () => {
      turns.current = before;
    };
  }

  #leave({ group, priority, turn }: StoredJob): () => void {
    const turns = this.#open(priority);
    if (turn < turns.current) return nothing;
    if (group === null) {
      const undo = restore(turns);
      turns.isStale ||= turn === turns.last;
      return undo;
    }
    const known = this.#groups.find(this, nameOf(priority, group));
    if (!known || known.last !== turn) return nothing;
    const before = known.isStale;
    known.isStale = true;
    return () => {
      known.isStale = before;
    };
  }

  #note(priority: number, group: string, last: number): () => void {
    const name = nameOf(priority, group);
    const before = this.#groups.find(this, name);
    this.#groups.put(this, name, { last, isStale: false, version: this.#version });
    return () => {
      if (before) this.#groups.put(this, name, before);
      else this.#groups.delete(this, name);
    };
  }

  #setHasAll(hasAll: boolean): () => void {
    const before = this.hasAllGroups;
    this.hasAllGroups = hasAll;
    return () => {
      this.hasAllGroups = before;
    };
  }

  #staleAll(): () => void {
    this.#version++;
    return () => {
      this.#version++;
    };
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

function restore(turns: PriorityTurns): () => void {
  const before = { ...turns };
  return () => {
    Object.assign(turns, before);
  };
}

function nameOf(priority: number, group: string): string {
  return `${priority} ${group}`;
}
