// Finds ready jobs that have outgrown GPU types, in the database: jobs that most workers must not take are few, and few
// takes look for them. The database has all changes when these functions run.
import type { Step, StoredJob, TakeableJobs } from '../store.ts';
import type { Tables } from '../tables.ts';
import { FIRST_WINDOW_JOBS, type LiveEndpoint } from './live-endpoint.ts';
import { type Place, placeOf } from './place.ts';
import type { GroupCapacity } from './short-groups.ts';
import { fitGroups } from './takeable-jobs.ts';

export interface OutgrownSearch {
  /** Numbers of the types. */
  gpuTypes: readonly number[];
  limit: number;
  capacity: GroupCapacity;
  /** Most rows of all types. A commit that has searched so many begins no other search. */
  maxRows: number;
}

export function* loadOutgrown(tables: Tables, live: LiveEndpoint): Step<void> {
  const loads = yield* tables.outgrownLoads(live.id);
  live.outgrown = new Set(loads.map(({ gpuType }) => gpuType));
}

/**
 * The best jobs of each type, as far as their groups have capacity. Each type has its share of the rows: otherwise jobs that
 * nobody may take would use up those of the next type, at each search anew.
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
  let from: Place | undefined;
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
    from = placeOf(last);
  }
  return { jobs, isBlocked };
}
