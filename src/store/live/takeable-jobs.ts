// Chooses the ready jobs of an endpoint that can be leased without exceeding the limit of any group, and reads from the
// database what that needs.
import { type GroupGate, OWNER, type Step, type StoredJob, type TakeableJobs } from '../store.ts';
import type { Tables } from '../tables.ts';
import { compareRanks, type GroupCapacity, groupOf, type Rank } from './group-queue.ts';
import { FIRST_WINDOW_JOBS, type LiveEndpoint } from './live-endpoint.ts';
import {
  GROUPS_AT_ONCE,
  type GroupUse,
  type Need,
  type Search,
  type Selection,
} from './ready-groups.ts';

/** Kind of the resources that have what groups have used. */
const KIND = 'share';

export interface LimitedRequest {
  endpointId: string;
  limit: number;
  /** Time of the operation. */
  now: number;
  /** Most leases of one group. */
  groupLimit: number;
  gate: GroupGate | undefined;
}

/** `limits`: of the jobs in memory. */
export function findTakeable(
  live: LiveEndpoint,
  { gate, groupLimit, limit, now }: LimitedRequest,
  limits: Pick<Search, 'shareJobs' | 'windowJobs'>,
): Selection {
  const { ready } = live;
  // Without a gate, groups may have grown that no later request names.
  const terms = gate?.terms ?? 'none';
  if (live.groupLimit !== groupLimit || live.terms !== terms) ready.noteRooms();
  for (const group of gate?.grown ?? []) ready.noteRoom(group);
  live.groupLimit = groupLimit;
  live.gate = gate?.capacity;
  live.terms = terms;
  const isLimited = gate !== undefined || groupLimit !== Number.POSITIVE_INFINITY;
  const capacity = isLimited ? (group: string) => live.capacity(group) : undefined;
  return ready.select({ limit, now, capacity, ...limits });
}

/** What the database has returned for a need. */
export type Found =
  | { what: 'start'; priorities: number[]; uses: GroupUse[] }
  | { what: 'groups'; groups: string[] }
  | { what: 'jobs'; jobs: StoredJob[] };

export function* readNeeded(tables: Tables, endpointId: string, need: Need): Step<Found> {
  if (need.what === 'start') {
    const all = { kind: KIND, parent: endpointId, limit: Number.MAX_SAFE_INTEGER };
    const rows = yield* tables.resources(all);
    const priorities = yield* tables.readyPriorities(endpointId);
    return { what: 'start', priorities, uses: rows.map(({ body }) => JSON.parse(body)) };
  }
  if (need.what === 'groups') {
    const { after, priority } = need;
    const range = { endpointId, priority, after, limit: GROUPS_AT_ONCE };
    return { what: 'groups', groups: yield* tables.readyGroups(range) };
  }
  const { limit, wanted } = need;
  return { what: 'jobs', jobs: yield* tables.readyJobsOfGroups(endpointId, wanted, limit) };
}

/** @returns the added jobs */
export function addNeeded(live: LiveEndpoint, need: Need, found: Found): StoredJob[] {
  const { ready } = live;
  if (found.what === 'start') {
    ready.start(found.priorities, found.uses);
    live.searchedRows += found.uses.length;
  } else if (found.what === 'groups' && need.what === 'groups') {
    ready.addGroups(need.priority, found.groups);
    live.searchedRows += found.groups.length;
  } else if (found.what === 'jobs' && need.what === 'jobs') {
    live.searchedRows += found.jobs.length;
    live.nextWindowJobs *= 2;
    return ready.addJobs(
      need,
      found.jobs.map((job) => live.jobs.get(job.id) ?? job),
    );
  }
  return [];
}

/** Writes what the rows of the groups lack. */
export function* writeUses(tables: Tables, live: LiveEndpoint): Step<void> {
  const { changed, gone } = live.ready.takeUnsaved();
  for (const key of gone) yield* tables.removeResource({ kind: KIND, id: nameRow(live.id, key) });
  for (const use of changed) {
    const row = { kind: KIND, id: nameRow(live.id, use), parent: live.id, position: 0 };
    const userId = live.endpoint?.userId ?? OWNER;
    yield* tables.putResource({ ...row, userId, body: JSON.stringify(use) });
  }
}

function nameRow(
  endpointId: string,
  { group, priority }: Pick<GroupUse, 'group' | 'priority'>,
): string {
  return `${endpointId}/${priority}/${group}`;
}

/** The jobs that fit into the capacity of their groups, in their order. */
function fitGroups(jobs: readonly StoredJob[], capacity: GroupCapacity): StoredJob[] {
  const left = new Map<string, number>();
  return jobs.filter((job) => {
    const group = groupOf(job);
    const free = left.get(group) ?? capacity(group);
    left.set(group, free - 1);
    return free > 0;
  });
}

/** The jobs of both by priority; those of `other`, which few workers may take, come first. */
export function mergeTakeable(
  one: TakeableJobs,
  other: TakeableJobs,
  { limit, capacity }: { limit: number; capacity: GroupCapacity },
): TakeableJobs {
  if (other.jobs.length === 0 && !other.isBlocked && !other.hasMore) return one;
  const first = other.jobs.toSorted(compareRanks);
  const jobs = [...first, ...one.jobs].sort((a, b) => b.priority - a.priority);
  return {
    jobs: fitGroups(jobs, capacity).slice(0, limit),
    isBlocked: one.isBlocked || other.isBlocked,
    hasMore: one.hasMore || other.hasMore,
  };
}

interface OutgrownSearch {
  /** Numbers of the types. */
  gpuTypes: readonly number[];
  limit: number;
  capacity: GroupCapacity;
  /** Most rows of all types. A commit that has searched so many begins no other search. */
  maxRows: number;
}

/** Numbers of the GPU types that ready jobs have outgrown. */
export function* loadOutgrown(tables: Tables, endpointId: string): Step<Set<number>> {
  const loads = yield* tables.outgrownLoads(endpointId);
  return new Set(loads.map(({ gpuType }) => gpuType));
}

/**
 * Finds ready jobs that have outgrown GPU types: the best ones of each type whose groups have capacity. Reads the database,
 * which has all changes, because such jobs are few, and few takes look for them. Each type has its share of the rows:
 * otherwise jobs that no worker may take would use up the rows of the next type in each search.
 */
export function* findOutgrown(
  tables: Tables,
  live: LiveEndpoint,
  search: OutgrownSearch,
): Step<TakeableJobs> {
  const found: TakeableJobs = { jobs: [], isBlocked: false, hasMore: false };
  if (live.searchedRows >= search.maxRows) return { ...found, hasMore: true };
  const share = { ...search, maxRows: Math.ceil(search.maxRows / search.gpuTypes.length) };
  for (const gpuType of search.gpuTypes) {
    const { isBlocked, jobs } = yield* findOfType(tables, live, share, gpuType);
    found.jobs.push(...jobs);
    found.isBlocked ||= isBlocked;
  }
  return found;
}

function* findOfType(
  tables: Tables,
  live: LiveEndpoint,
  { limit, maxRows, capacity }: OutgrownSearch,
  gpuType: number,
): Step<Omit<TakeableJobs, 'hasMore'>> {
  const jobs: StoredJob[] = [];
  // Positions may be equal after the clock was set back, so the first one of a page may be any of them.
  const seen = new Set<string>();
  let isBlocked = false;
  let from: Rank | undefined;
  // One more than wanted: a page begins with the last job of the page before.
  let pageRows = limit + 1;
  for (let rows = 0; rows < maxRows; rows += pageRows) {
    // Jobs of groups at their limit come first: larger pages, so that few queries pass over them.
    if (rows > 0) pageRows = Math.min(Math.max(2 * pageRows, FIRST_WINDOW_JOBS), maxRows);
    const page = yield* tables.outgrownJobs({
      endpointId: live.id,
      gpuType,
      from,
      limit: pageRows,
    });
    live.searchedRows += page.length;
    if (!from && page.length === 0) live.outgrown?.delete(gpuType);
    const fresh = page.filter(({ id }) => !seen.has(id)).map((job) => live.jobs.get(job.id) ?? job);
    for (const { id } of fresh) seen.add(id);
    const fitting = fitGroups([...jobs, ...fresh], capacity).slice(jobs.length);
    isBlocked ||= fitting.length < fresh.length;
    jobs.push(...fitting);
    const last = page.at(-1);
    if (jobs.length >= limit || page.length < pageRows || !last) break;
    from = { priority: last.priority, place: last.place };
  }
  return { jobs, isBlocked };
}
