// Finds ready jobs that have outgrown GPU types, in the database: jobs that most workers must not take are few, and few
// takes look for them. The database has all changes when these functions run.
import type { Step, StoredJob, TakeableJobs } from '../store.ts';
import type { Tables } from '../tables.ts';
import type { LiveEndpoint } from './live-endpoint.ts';
import { type Place, placeOf } from './place.ts';
import type { Room } from './short-groups.ts';
import { fitGroups } from './takeable-jobs.ts';

export interface OutgrownSearch {
  /** Numbers of the types. */
  gpuTypes: readonly number[];
  limit: number;
  room: Room;
  /** Most rows of a type, and of all searches of a commit before the last one. */
  maxRows: number;
}

export function* loadOutgrown(tables: Tables, live: LiveEndpoint): Step<void> {
  const loads = yield* tables.outgrownLoads(live.id);
  live.outgrown = new Set(loads.map(({ gpuType }) => gpuType));
}

/** The best jobs of each type, as far as their groups have room. */
export function* findOutgrown(
  tables: Tables,
  live: LiveEndpoint,
  search: OutgrownSearch,
): Step<TakeableJobs> {
  const found: TakeableJobs = { jobs: [], isBlocked: false, hasMore: false };
  for (const gpuType of search.gpuTypes) {
    if (live.searchedRows >= search.maxRows) return { ...found, hasMore: true };
    const { isBlocked, jobs } = yield* findOfType(tables, live, search, gpuType);
    found.jobs.push(...jobs);
    found.isBlocked ||= isBlocked;
  }
  return found;
}

/** Groups take turns, so the first `maxRows` jobs are hardly ever all of groups at their limit. */
function* findOfType(
  tables: Tables,
  live: LiveEndpoint,
  { limit, maxRows, room }: OutgrownSearch,
  gpuType: number,
): Step<Omit<TakeableJobs, 'hasMore'>> {
  const jobs: StoredJob[] = [];
  let isBlocked = false;
  let from: Place | undefined;
  // One more than wanted: a page begins with the last job of the page before.
  const pageRows = limit + 1;
  for (let rows = 0; rows < maxRows; rows += pageRows) {
    const page = yield* tables.outgrownJobs({
      endpointId: live.id,
      gpuType,
      from,
      limit: pageRows,
    });
    live.searchedRows += page.length;
    if (!from && page.length === 0) live.outgrown?.delete(gpuType);
    const fresh = page.slice(from ? 1 : 0).map((job) => live.jobs.get(job.id) ?? job);
    const fitting = fitGroups([...jobs, ...fresh], room).slice(jobs.length);
    isBlocked ||= fitting.length < fresh.length;
    jobs.push(...fitting);
    const last = page.at(-1);
    if (jobs.length >= limit || page.length < pageRows || !last) break;
    from = placeOf(last);
  }
  return { jobs, isBlocked };
}
