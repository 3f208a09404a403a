// Lists the FAILED and TIMED_OUT jobs of several endpoints, newest first. A page reads a bounded number of jobs, whatever
// the number of endpoints and however the failures are spread over them.
import { ownTurn } from '../base/slices.ts';
import type { Reader, Step, Store, StoredJob } from '../store/store.ts';
import type { ErrorCode, JobSummary } from '../wire/job/job.ts';
import { describePreviews } from './job-previews.ts';
import { MAX_SCANNED, SCANNED_AT_ONCE } from './job-search.ts';
import { toSummary } from './records.ts';

export interface FailedListing {
  /** Position of the last job of the page before. */
  before?: number | undefined;
  limit: number;
  /** Only jobs of which an attempt failed with this code. */
  errorCode?: ErrorCode | undefined;
}

export interface FailedJob extends JobSummary {
  endpointId: string;
  position: number;
  endedAt: number | null;
}

export interface FailedPage {
  jobs: FailedJob[];
  /** `before` of the next page; undefined on the last one. A page before it may have few jobs, or none. */
  next?: number | undefined;
}

const STATUSES = { failed: 'FAILED', timedOut: 'TIMED_OUT' } as const;
const KINDS = ['failed', 'timedOut'] as const;

/** Sources that one operation of the store reads. */
const READ_AT_ONCE = 50;

/** The jobs of one endpoint with one of the statuses, read a few at a time. */
interface Source {
  endpointId: string;
  kind: (typeof KINDS)[number];
  /** Jobs that are read and not yet on the page. */
  jobs: StoredJob[];
  /** Jobs with lower positions may follow; undefined: none do. */
  next: number | undefined;
}

export async function listFailed(
  store: Store,
  endpointIds: readonly string[],
  { listing, now }: { listing: FailedListing; now: number },
): Promise<FailedPage> {
  const { before = Number.MAX_SAFE_INTEGER, limit } = listing;
  const sources = endpointIds.flatMap((endpointId) =>
    KINDS.map((kind): Source => ({ endpointId, kind, jobs: [], next: before })),
  );
  const share = Math.ceil((2 * limit) / Math.max(1, sources.length));
  let scanned = 0;
  const fill = async (some: readonly Source[], most: number) => {
    const scan = Math.min(SCANNED_AT_ONCE, Math.ceil(MAX_SCANNED / some.length));
    // Other operations run between these reads.
    for (let at = 0; at < some.length; at += READ_AT_ONCE) {
      if (scanned > 0 || at > 0) await ownTurn();
      const slice = some.slice(at, at + READ_AT_ONCE);
      await store.read(function* (tx) {
        for (const source of slice) yield* readOn(tx, source, { listing, most, scan });
      });
    }
    scanned += listing.errorCode === undefined ? some.length * most : some.length * scan;
  };
  if (sources.length > 0) await fill(sources, Math.min(limit, share));

  const found: StoredJob[] = [];
  let left = findNewest(sources);
  while (left && found.length < limit) {
    const job = left.jobs.shift();
    if (job) found.push(job);
    else if (scanned >= MAX_SCANNED) break;
    else await fill([left], limit - found.length);
    left = findNewest(sources);
  }
  const previews = await describePreviews(store, found);
  return {
    jobs: found.map((job, index) => ({
      ...{ ...toSummary(job, now), ...previews[index] },
      ...{ endpointId: job.endpointId, position: job.position, endedAt: job.endedAt },
    })),
    next: left && topOf(left) + 1,
  };
}

/** The source that may have the newest job; undefined if all are at their end. */
function findNewest(sources: readonly Source[]): Source | undefined {
  let newest: Source | undefined;
  for (const source of sources) {
    if (topOf(source) > (newest ? topOf(newest) : -1)) newest = source;
  }
  return newest;
}

/** Highest possible position of its next job. */
function topOf({ jobs, next = 0 }: Source): number {
  return jobs[0]?.position ?? next - 1;
}

interface SourceRead {
  listing: FailedListing;
  most: number;
  scan: number;
}

function* readOn(tx: Reader, source: Source, read: SourceRead): Step<void> {
  const { endpointId, kind, next: before } = source;
  const { listing, most: limit, scan } = read;
  const { errorCode } = listing;
  const endpoint = yield* tx.endpoint(endpointId);
  if (!endpoint || endpoint.deleted || endpoint[kind] === 0) {
    source.next = undefined;
    return;
  }
  const wanted = { endpointId, status: STATUSES[kind], before, limit };
  if (errorCode === undefined) {
    source.jobs = yield* tx.jobs(wanted);
    source.next = source.jobs.length < limit ? undefined : source.jobs.at(-1)?.position;
  } else {
    const found = yield* tx.findJobs({ ...wanted, errorCode, from: undefined, scan });
    Object.assign(source, found);
  }
}

/** Merges the pages of several queues or nodes into one. */
export function mergeFailed(pages: readonly FailedPage[], limit: number): FailedPage {
  // Below this position, a page with a `next` may lack jobs.
  const floor = Math.max(0, ...pages.map(({ next = 0 }) => next));
  const all = pages
    .flatMap(({ jobs }) => jobs)
    .filter(({ position }) => position >= floor)
    .sort((a, b) => b.position - a.position);
  const last = all[limit - 1]?.position ?? 0;
  // Jobs of two queues can have the same position: the next page begins behind all of them.
  const jobs = all.filter(({ position }) => position >= last);
  const next = jobs.length < all.length ? last : floor;
  return { jobs, next: next === 0 ? undefined : next };
}
