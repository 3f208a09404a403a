// Cancels, retries or deletes the jobs of an endpoint that match a filter. Each call looks at a bounded number of jobs and
// says where the next one goes on, so nothing has to be kept between calls.
import { yieldToLoop } from '../base/slices.ts';
import type { Reader, StoredJob } from '../store/store.ts';
import { CHANGED_STATUSES, type JobChange, type JobStatus } from '../wire/job/job.ts';
import { SLICE_JOBS, SLICE_LOG_BYTES } from './changes.ts';
import { prepareCount } from './dead-letters.ts';
import { retryJob } from './flows/parents.ts';
import { type JobCriteria, searchJobs } from './job-lists.ts';
import type { QueueParts } from './queue-parts.ts';

/** Where a call goes on: behind this job of the status. */
export interface ChangePlace {
  status: JobStatus;
  before?: number | undefined;
}

export interface ChangeRequest {
  endpointId: string;
  change: JobChange;
  criteria: JobCriteria;
  /** Only jobs with this status. Default: all that allow the change, one after the other. */
  status?: JobStatus | undefined;
  /**
   * Only jobs that were submitted by then; to be retried or deleted, they must have ended by then too. So a job that fails
   * again is not retried once more when a call is repeated. Default: now.
   */
  asOf?: number | undefined;
  from?: ChangePlace | undefined;
  /** Only counts. */
  dryRun: boolean;
}

export interface ChangePage {
  matched: number;
  /** The others could not be changed, or others have changed them meanwhile. */
  changed: number;
  asOf: number;
  /** Undefined: the search is at its end. */
  next: ChangePlace | undefined;
}

/** Jobs that one call changes or counts. */
const MAX_CHANGED = 1_000;

export async function changeJobs(
  options: Pick<QueueParts, 'changes' | 'clock' | 'remoteJobs' | 'store'>,
  { asOf: given = Number.MAX_SAFE_INTEGER, ...request }: ChangeRequest,
): Promise<ChangePage> {
  const asOf = Math.min(given, options.clock.now());
  const { change, criteria, dryRun, endpointId, from, status } = request;
  const all: readonly JobStatus[] = CHANGED_STATUSES[change];
  const statuses = status === undefined ? all : [status];
  const [first = from?.status] = statuses;
  const { status: of = first, before } = from ?? {};
  // A running job may return to the queue behind a search of that: both are searched at once, by position.
  const isOpen = change === 'cancel' && status === undefined;
  const { jobs, next } = await searchJobs(options.store, {
    ...{ ...criteria, endpointId, status: isOpen ? statuses : of, before, limit: MAX_CHANGED },
    until: Math.min(criteria.until ?? asOf, asOf),
  });
  const isWanted = (job: StoredJob) =>
    statuses.includes(job.status) && (change === 'cancel' || (job.endedAt ?? asOf) <= asOf);
  const matching = jobs.filter(isWanted);
  let changed = 0;
  if (!dryRun) {
    // The oldest first: parents before their children.
    for (const slice of cutSlices(matching.toReversed())) {
      changed += await changeSlice(options, { change, isWanted, slice });
      await yieldToLoop();
    }
  }
  return {
    matched: matching.length,
    changed,
    asOf,
    next: findNext(isOpen ? [] : statuses, of, next),
  };
}

function findNext(
  statuses: readonly JobStatus[],
  status: JobStatus | undefined,
  before: number | undefined,
): ChangePlace | undefined {
  if (status !== undefined && before !== undefined) return { status, before };
  const following = status && statuses[statuses.indexOf(status) + 1];
  return following && { status: following };
}

/** Each is some milliseconds of work. */
function* cutSlices(jobs: readonly StoredJob[]): Generator<StoredJob[]> {
  let slice: StoredJob[] = [];
  let logBytes = 0;
  for (const job of jobs) {
    if (slice.length === SLICE_JOBS || logBytes > SLICE_LOG_BYTES) {
      yield slice;
      slice = [];
      logBytes = 0;
    }
    slice.push(job);
    logBytes += job.logBytes;
  }
  if (slice.length > 0) yield slice;
}

interface SliceChange {
  change: JobChange;
  isWanted: (job: StoredJob) => boolean;
  slice: readonly StoredJob[];
}

/** @returns the number of jobs that have changed */
async function changeSlice(
  { changes, remoteJobs, store }: Pick<QueueParts, 'changes' | 'remoteJobs' | 'store'>,
  { change: type, isWanted, slice }: SliceChange,
): Promise<number> {
  const linked = type === 'retry' ? slice.filter((job) => job.linked) : [];
  const remote = await remoteJobs.ofJobs(
    linked.length > 0 ? await store.read((tx) => tx.each(linked, (job) => tx.job(job))) : [],
  );
  return changes.inSlice(() =>
    changes.commit((tx, step) => {
      const jobs = tx.each(slice, (job) => tx.job(job)).filter((job) => job !== undefined);
      prepareCount(tx, jobs);
      if (type === 'retry') loadParents(tx, jobs);
      return jobs.filter((read) => {
        // A step before may have changed it: the end of its parent.
        const job = tx.job(read);
        if (!job || !isWanted(job)) return false;
        const decision =
          type === 'retry' ? retryJob(tx, step, { job, remote }) : step(job, { type });
        return !('refused' in decision);
      }).length;
    }),
  );
}

/** All at once: otherwise, the operation would run again for each job. */
function loadParents(tx: Reader, jobs: readonly StoredJob[]): void {
  const parents = jobs.flatMap(({ links }) => links?.parents ?? []);
  tx.each(parents, (parent) => tx.job(parent));
}
