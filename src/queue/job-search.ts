// Lists the jobs of an endpoint that match a filter, a bounded number of jobs at a time.
import { ownTurn } from '../base/slices.ts';
import type { JobFilter, Store, StoredJob } from '../store/store.ts';
import type { JobStatus } from '../wire/job/job.ts';
import { readEndpoint } from './endpoint-removal.ts';

/** Jobs that one operation of the store looks at, and that one page looks at. */
export const SCANNED_AT_ONCE = 2_000;
export const MAX_SCANNED = 20_000;
/** Positions are Unix µs. */
const POSITIONS_PER_MS = 1_000;

export interface JobListing extends JobFilter {
  endpointId: string;
  status: JobStatus | undefined;
  /** Only jobs that were submitted at or after this time, Unix ms. */
  since?: number | undefined;
  /** Only jobs that were submitted at or before this time, Unix ms. */
  until?: number | undefined;
  before: number | undefined;
  limit: number;
  /** Include the starts of inputs and errors. */
  hasPreviews?: boolean | undefined;
}

/** Filters besides the status. */
export type JobCriteria = Omit<
  JobListing,
  'endpointId' | 'status' | 'before' | 'limit' | 'hasPreviews'
>;

export function isFiltered(listing: JobListing): boolean {
  const { errorCode, idPart, since, until, workerId } = listing;
  return [errorCode, idPart, since, until, workerId].some((filter) => filter !== undefined);
}

/**
 * Newest first. There may be few jobs, or none, and yet a next page: no index has what a filter names, because it would
 * cost every job a write. Other operations take turns with those of the search.
 */
export async function searchJobs(
  store: Store,
  { since = 0, until = Number.MAX_SAFE_INTEGER, ...listing }: JobListing,
): Promise<{ jobs: StoredJob[]; next: number | undefined }> {
  const { before = Number.MAX_SAFE_INTEGER, endpointId, limit } = listing;
  const from = toPosition(since);
  const jobs: StoredJob[] = [];
  let next = Math.min(before, toPosition(until + 1));
  for (let scanned = 0; scanned < MAX_SCANNED && jobs.length < limit; scanned += SCANNED_AT_ONCE) {
    const left = { before: next, limit: limit - jobs.length, scan: SCANNED_AT_ONCE };
    const found = await store.read(function* (tx) {
      yield* readEndpoint(tx, endpointId);
      return yield* tx.findJobs({ ...listing, ...left, from });
    });
    jobs.push(...found.jobs);
    if (found.next === undefined) return { jobs, next: undefined };
    next = found.next;
    await ownTurn();
  }
  return { jobs, next };
}

function toPosition(time: number): number {
  return Math.min(time * POSITIONS_PER_MS, Number.MAX_SAFE_INTEGER);
}
