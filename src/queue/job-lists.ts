// Lists of jobs: those of an endpoint that match a filter, the failed ones of several endpoints, and the starts of inputs
// and errors that lists show. A page reads a bounded number of jobs, however they are spread.
import { yieldToLoop } from '../base/slices.ts';
import {
  type FoundJobs,
  type JobFilter,
  type JobPreview,
  LOWEST_POSITION,
  type Reader,
  type Store,
  type StoredJob,
} from '../store/store.ts';
import type { ErrorCode, JobStatus } from '../wire/job/job.ts';
import type { JobSummary } from '../wire/job/job-records.ts';
import { readEndpoint } from './endpoint-removal.ts';
import { toSummary } from './records.ts';
import { numberRun } from './timeline.ts';

export interface FailedListing {
  /** Position of the last job of the page before. */
  before?: number | undefined;
  limit: number;
  /** Only jobs of which an attempt failed with this code. */
  errorCode?: ErrorCode | undefined;
  /** Only jobs with all of these tags. */
  tags?: readonly string[] | undefined;
  /** Only jobs that ended at or after this time, Unix ms. */
  since?: number | undefined;
  /** Only jobs that ended at or before this time, Unix ms. */
  until?: number | undefined;
  /** Only jobs with this text in the message of their error or in their input, of at most 16 KB. */
  text?: string | undefined;
}

interface FailedJob extends JobSummary {
  endpointId: string;
  position: number;
  endedAt: number | null;
  retryOf?: string;
  retriedAs?: string;
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
      if (scanned > 0 || at > 0) await yieldToLoop();
      const slice = some.slice(at, at + READ_AT_ONCE);
      const pages = await store.read((tx) =>
        tx.each(slice, (source) => readOn(tx, source, { listing, most, scan })),
      );
      for (const [index, source] of slice.entries()) {
        const { jobs = [], next } = pages[index] ?? {};
        Object.assign(source, { jobs: await selectFailed(store, jobs, listing), next });
      }
    }
    const isSearch = listing.errorCode !== undefined || listing.tags;
    scanned += some.length * (isSearch ? scan : most);
    // Inputs are read for it, too.
    if (listing.text !== undefined) scanned += 9 * some.length * most;
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
      ...toSummary(job, now),
      ...previews[index],
      endpointId: job.endpointId,
      position: job.position,
      endedAt: job.endedAt,
      ...(job.resubmission?.of !== undefined && { retryOf: job.resubmission.of }),
      ...(job.resubmission?.as !== undefined && { retriedAs: job.resubmission.as }),
    })),
    next: left && topOf(left) + 1,
  };
}

/** The source that may have the newest job; undefined if all are at their end. */
function findNewest(sources: readonly Source[]): Source | undefined {
  let newest: Source | undefined;
  for (const source of sources) {
    if (topOf(source) > (newest ? topOf(newest) : Number.NEGATIVE_INFINITY)) newest = source;
  }
  return newest;
}

/** Highest possible position of its next job. */
function topOf({ jobs, next = Number.NEGATIVE_INFINITY }: Source): number {
  return jobs[0]?.position ?? next - 1;
}

interface SourceRead {
  listing: FailedListing;
  most: number;
  scan: number;
}

function readOn(tx: Reader, source: Source, read: SourceRead): FoundJobs {
  const { endpointId, kind, next: before } = source;
  const { listing, most: limit, scan } = read;
  const { errorCode, tags } = listing;
  const endpoint = tx.endpoint(endpointId);
  if (!endpoint || endpoint.deleted || endpoint[kind] === 0) {
    return { jobs: [], next: undefined };
  }
  const wanted = { endpointId, status: STATUSES[kind], before, from: LOWEST_POSITION, limit };
  if (errorCode !== undefined || tags) {
    return tx.findJobs({ ...wanted, errorCode, tags, scan });
  }
  const jobs = tx.jobs(wanted);
  return { jobs, next: jobs.length < limit ? undefined : jobs.at(-1)?.position };
}

/** Below all positions. */
const NOWHERE = Number.NEGATIVE_INFINITY;

/** The jobs that fit the filters which no statement knows. */
async function selectFailed(
  store: Store,
  jobs: readonly StoredJob[],
  { since = 0, text, until = Number.MAX_SAFE_INTEGER }: FailedListing,
): Promise<StoredJob[]> {
  const timely = jobs.filter(
    ({ endedAt }) => endedAt !== null && endedAt >= since && endedAt <= until,
  );
  if (text === undefined) return timely;
  const found: StoredJob[] = [];
  for (let at = 0; at < timely.length; at += PREVIEWED_AT_ONCE) {
    const slice = timely.slice(at, at + PREVIEWED_AT_ONCE);
    const previews = await store.read((tx) =>
      tx.each(slice, (key) => tx.jobPreview(key, MAX_INPUT_BYTES)),
    );
    found.push(...slice.filter((_, index) => hasText(previews[index], text)));
    await yieldToLoop();
  }
  return found;
}

/** Without regard to case. */
function hasText(preview: JobPreview | undefined, text: string): boolean {
  const { error, input } = preview ?? {};
  const texts = [
    error?.message ?? '',
    input instanceof Uint8Array ? Buffer.from(input).toString() : '',
  ];
  return texts.some((each) => each.toLowerCase().includes(text.toLowerCase()));
}

/** Merges the pages of several queues or nodes into one. */
export function mergeFailed(pages: readonly FailedPage[], limit: number): FailedPage {
  // Below this position, a page with a `next` may lack jobs.
  const floor = Math.max(...pages.map(({ next = NOWHERE }) => next));
  const all = pages
    .flatMap(({ jobs }) => jobs)
    .filter(({ position }) => position >= floor)
    .sort((a, b) => b.position - a.position);
  const last = all[limit - 1]?.position ?? NOWHERE;
  // Jobs of two queues can have the same position: the next page begins behind all of them.
  const jobs = all.filter(({ position }) => position >= last);
  const next = jobs.length < all.length ? last : floor;
  return { jobs, next: next === NOWHERE ? undefined : next };
}

/** Jobs that one operation of the store looks at, and that one page looks at. */
export const SCANNED_AT_ONCE = 2_000;
const MAX_SCANNED = 20_000;
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
  const { errorCode, idPart, since, tags, until, workerId } = listing;
  return [errorCode, idPart, since, tags, until, workerId].some((filter) => filter !== undefined);
}

/**
 * Newest first. There may be few jobs, or none, and yet a next page: no index has what a filter names, because it would
 * cost every job a write. Other operations take turns with those of the search.
 */
export async function searchJobs(
  store: Store,
  {
    since = 0,
    status,
    until = Number.MAX_SAFE_INTEGER,
    ...listing
  }: Omit<JobListing, 'status'> & { status: JobStatus | undefined | readonly JobStatus[] },
): Promise<{ jobs: StoredJob[]; next: number | undefined }> {
  const { before = Number.MAX_SAFE_INTEGER, endpointId, limit } = listing;
  const from = toPosition(since);
  const statuses = typeof status === 'object' ? status : [status];
  const jobs: StoredJob[] = [];
  let next = Math.min(before, toPosition(until + 1));
  for (let scanned = 0; scanned < MAX_SCANNED && jobs.length < limit; scanned += SCANNED_AT_ONCE) {
    const left = { before: next, limit: limit - jobs.length, scan: SCANNED_AT_ONCE };
    const found = await store.read((tx) => {
      readEndpoint(tx, endpointId);
      const each = statuses.map((one) => tx.findJobs({ ...listing, ...left, status: one, from }));
      return joinFound(each, left.limit);
    });
    jobs.push(...found.jobs);
    if (found.next === undefined) return { jobs, next: undefined };
    next = found.next;
    await yieldToLoop();
  }
  return { jobs, next };
}

/** One search over several statuses: as far down as each of them has come. */
function joinFound(each: readonly FoundJobs[], limit: number): FoundJobs {
  const reached = each.flatMap(({ next }) => next ?? []);
  const end = reached.length > 0 ? Math.max(...reached) : undefined;
  const all = each
    .flatMap(({ jobs }) => jobs)
    .filter(({ position }) => end === undefined || position >= end)
    .toSorted((a, b) => b.position - a.position);
  const jobs = all.slice(0, limit);
  return { jobs, next: jobs.length < all.length ? jobs.at(-1)?.position : end };
}

function toPosition(time: number): number {
  return Math.min(time * POSITIONS_PER_MS, Number.MAX_SAFE_INTEGER);
}

/** Largest page of a list with previews. */
export const MAX_PREVIEWED = 100;
/** Larger inputs have no preview, bytes: a page must cost less than its jobs. */
const MAX_INPUT_BYTES = 16_384;
const MESSAGE_CHARACTERS = 500;
const INPUT_CHARACTERS = 300;
/** Jobs that one operation of the store reads. */
const PREVIEWED_AT_ONCE = 25;

type Shown = Pick<JobSummary, 'error' | 'inputPreview' | 'inputBytes' | 'run' | 'runAttempt'>;
type Previewed = Pick<StoredJob, 'endpointId' | 'id' | 'attempt'>;

/** Previews in the order of the jobs; none for a job that is gone. */
export async function describePreviews(store: Store, jobs: readonly Previewed[]): Promise<Shown[]> {
  const shown: Shown[] = [];
  for (let at = 0; at < jobs.length; at += PREVIEWED_AT_ONCE) {
    const slice = jobs.slice(at, at + PREVIEWED_AT_ONCE);
    const previews = await store.read((tx) =>
      tx.each(slice, (key) => tx.jobPreview(key, MAX_INPUT_BYTES)),
    );
    slice.forEach((job, index) => {
      const preview = previews[index];
      shown.push(preview ? describe(preview, job) : {});
    });
  }
  return shown;
}

function describe({ error, input, notes }: JobPreview, { attempt }: Previewed): Shown {
  const { code, message } = error ?? {};
  return {
    ...numberRun({ attempt, notes }),
    ...(code !== undefined &&
      message !== undefined && { error: { code, message: cut(message, MESSAGE_CHARACTERS) } }),
    ...(typeof input === 'number'
      ? { inputBytes: input }
      : {
          inputPreview: cut(Buffer.from(input).toString(), INPUT_CHARACTERS),
          inputBytes: input.length,
        }),
  };
}

function cut(text: string, characters: number): string {
  return text.length <= characters ? text : `${text.slice(0, characters).toWellFormed()}…`;
}
