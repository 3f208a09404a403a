// Chooses the ready jobs of an endpoint that can be leased without exceeding the limit of any group, and says which rows
// the window must read from the database for that.
import type { GroupGate, Step, StoredJob, TakeableJobs } from '../store.ts';
import type { Tables } from '../tables.ts';
import { FIRST_WINDOW_JOBS, type LiveEndpoint } from './live-endpoint.ts';
import { compareRanks, type GroupCapacity, groupOf, type Rank, rankOf } from './ready-window.ts';

export interface LimitedRequest {
  endpointId: string;
  limit: number;
  /** Most leases of one group. */
  groupLimit: number;
  gate: GroupGate | undefined;
}

/** The first jobs of a group, or those from a place on, in the order of the queue. */
export interface Need {
  ofGroup?: string;
  /** Undefined: from the first one on. */
  from?: Rank | undefined;
  limit: number;
}

export interface Found {
  jobs: StoredJob[];
  isBlocked: boolean;
  /** With it, there may be more jobs. */
  need: Need | undefined;
  /** Jobs that are no longer in the window. */
  dropped: readonly StoredJob[];
}

/** Jobs of groups at their limit that stay in a window: each take passes over them. */
const MAX_PASSED = 64;

/** `windowJobs`: number of jobs to read when the window ends too early. */
export function findTakeable(
  live: LiveEndpoint,
  { gate, groupLimit, limit }: LimitedRequest,
  windowJobs: number,
): Found {
  const { window } = live;
  // Without a gate, groups may have grown that no later request names.
  const terms = gate?.terms ?? 'none';
  const isOther = live.groupLimit !== groupLimit || live.terms !== terms || limit > live.mostWanted;
  if (isOther) window.noteRooms();
  for (const group of gate?.grown ?? []) window.noteRoom(group);
  live.groupLimit = groupLimit;
  live.gate = gate?.capacity;
  live.terms = terms;
  live.mostWanted = Math.max(limit, live.mostWanted);
  const capacity = (group: string) => live.capacity(group);
  const short = window.findShort((group) => Math.min(capacity(group), live.mostWanted));
  if (short) {
    // Its jobs may be before all others.
    const need = { ofGroup: short.group, limit: Math.max(short.capacity, windowJobs) };
    return { jobs: [], isBlocked: true, need, dropped: [] };
  }
  const { jobs, passed } = window.select(limit, capacity);
  const isEnough = jobs.length === limit || window.hasAll;
  const dropped = isEnough && passed.length <= MAX_PASSED ? [] : window.pass(capacity);
  const isBlocked = passed.length > 0 || !window.isWhole;
  if (isEnough) return { jobs, isBlocked, need: undefined, dropped };
  const from = typeof window.extent === 'string' ? undefined : window.extent;
  // The first one is the last one of the window, if that is still queued.
  return { jobs, isBlocked, need: { from, limit: Math.max(limit, windowJobs) + 1 }, dropped };
}

/** Adds to the window what the database has returned for its need. @returns the added jobs */
export function addNeeded(live: LiveEndpoint, need: Need, jobs: readonly StoredJob[]): StoredJob[] {
  const known = jobs.map((job) => live.jobs.get(job.id) ?? job);
  const end = { isAll: jobs.length < need.limit };
  live.nextWindowJobs = 2 * need.limit;
  if (need.ofGroup !== undefined) return live.window.fill(need.ofGroup, known, end);
  return live.window.extend(known, (group) => live.capacity(group), end);
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

/** The best of both, in one order. */
export function mergeTakeable(
  one: TakeableJobs,
  other: TakeableJobs,
  { limit, capacity }: { limit: number; capacity: GroupCapacity },
): TakeableJobs {
  if (other.jobs.length === 0 && !other.isBlocked && !other.hasMore) return one;
  const jobs = [...one.jobs, ...other.jobs].sort(compareRanks);
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

/** Groups take turns, so the first `maxRows` jobs are hardly ever all of groups at their limit. */
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
    from = rankOf(last);
  }
  return { jobs, isBlocked };
}
