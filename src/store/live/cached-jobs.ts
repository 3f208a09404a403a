// The jobs in memory between two commits: CachedJobs says which of them stay, UnwrittenRows has those whose rows the next
// commit writes.
import { isTerminal } from '../../wire/job/job.ts';
import type { Step, StoredJob } from '../store.ts';
import type { AddedRow, ChangedRow, Tables } from '../tables.ts';
import type { LeasedJobs } from './leased-jobs.ts';
import {
  type ChangedJob,
  FIRST_WINDOW_JOBS,
  type LiveEndpoint,
  NO_PAYLOADS,
} from './live-endpoint.ts';

export interface CachedJobsOptions {
  /** Most ready jobs that are read at once. Default 256. */
  windowJobs?: number;
  /** Ready jobs in memory over all endpoints. Default 50,000. */
  readyJobs?: number;
  /** Jobs that stay in memory after their end, for their last reports and reads. Default 2,048. */
  endedJobs?: number;
}

/** The jobs of a group in memory may grow to this many times the jobs that are read at once. */
const WINDOW_GROWTH = 4;
/** Jobs with a lease that are larger than this are read again when they are needed, characters. */
const MAX_LEASED_SIZE = 2_000;

/**
 * Keeps the next ready jobs, small jobs with a lease, and the jobs that ended last. The database has all of them, so any
 * one may be dropped.
 */
export class CachedJobs {
  readonly #windowJobs: number;
  readonly #maxWindowed: number;
  readonly #maxEnded: number;
  readonly #leased: LeasedJobs;
  /** Endpoints with ready jobs; the one that was asked last is last. */
  readonly #windows = new Set<LiveEndpoint>();
  /** Number of ready jobs of all of them. */
  #windowed = 0;
  readonly #ended: { endpoint: LiveEndpoint; job: StoredJob }[] = [];

  constructor(leased: LeasedJobs, options: CachedJobsOptions) {
    const { windowJobs = 256, readyJobs = 50_000, endedJobs = 2_048 } = options;
    this.#leased = leased;
    this.#windowJobs = windowJobs;
    this.#maxWindowed = readyJobs;
    this.#maxEnded = endedJobs;
  }

  /** Number of ready jobs of the endpoint that may stay in memory. */
  get shareJobs(): number {
    return Math.floor(this.#maxWindowed / (this.#windows.size + 1));
  }

  /** Number of ready jobs of the endpoint to read at once: more each time. */
  windowJobs({ nextWindowJobs }: LiveEndpoint): number {
    const next = Math.min(nextWindowJobs, this.shareJobs);
    return Math.min(this.#windowJobs, Math.max(FIRST_WINDOW_JOBS, next));
  }

  /** The ready jobs of the endpoint are used, so that they are trimmed after those of other endpoints. */
  noteUse(live: LiveEndpoint): void {
    this.#windows.delete(live);
    this.#windows.add(live);
  }

  /** Jobs that are no longer among the ready ones in memory. */
  drop(live: LiveEndpoint, jobs: readonly StoredJob[]): void {
    for (const { id, lease } of jobs) {
      if (lease === null && !live.changed.has(id)) live.jobs.delete(id);
    }
  }

  /** The database has the job as it is in memory: keeps it, if it has a place there. */
  settleJob(live: LiveEndpoint, job: StoredJob): void {
    if (job.lease !== null) {
      if (measure(job) <= MAX_LEASED_SIZE) return;
      this.#leased.shrink(job);
      live.jobs.delete(job.id);
    } else if (!live.ready.has(job)) {
      if (isTerminal(job.status) && measure(job) === 0) this.#ended.push({ endpoint: live, job });
      else live.jobs.delete(job.id);
    }
  }

  /** The commit that changed the ready jobs of the endpoint is over. */
  settleReady(live: LiveEndpoint): void {
    const dropped = live.isRemoved
      ? live.ready.trim(0)
      : live.ready.trimChanged(WINDOW_GROWTH * this.#windowJobs, this.#windowJobs);
    this.drop(live, dropped);
    this.#count(live);
  }

  /** Drops the jobs that ended first, and ready jobs, those of endpoints used least recently first. */
  trim(): void {
    this.#dropEnded();
    for (const live of this.#windows) {
      if (this.#windowed <= this.#maxWindowed) return;
      // By half: ready jobs that are all dropped are read again when the endpoint is used next.
      const { size } = live.ready;
      this.drop(live, live.ready.trim(size > FIRST_WINDOW_JOBS ? size >>> 1 : 0));
      this.#count(live);
    }
  }

  #count(live: LiveEndpoint): void {
    this.#windowed += live.ready.size - live.counted;
    live.counted = live.ready.size;
    if (live.counted > 0) this.#windows.add(live);
    else this.#windows.delete(live);
  }

  #dropEnded(): void {
    const excess = this.#ended.length - this.#maxEnded;
    // In larger steps, because a removal from the front moves all others.
    if (excess < this.#maxEnded) return;
    for (const { endpoint, job } of this.#ended.splice(0, excess)) {
      // Unless a retry has changed it.
      if (endpoint.jobs.get(job.id) === job) endpoint.jobs.delete(job.id);
    }
  }
}

/** About the size of what makes a job large, characters. */
function measure({ attachment, error, history, notes, progress }: StoredJob): number {
  let size = (progress?.length ?? 0) + (attachment?.handlerData?.length ?? 0);
  if (error) size += error.message.length + (error.stack?.length ?? 0);
  for (const { message } of history) size += message.length;
  for (const { message } of notes) size += message?.length ?? 0;
  return attachment || error || history.length > 0 ? size + 1 : size;
}

/** Removed jobs after which an operation waits for the removal of their rows: a slice of time includes it. */
const MAX_REMOVED = 32;
/** Bytes of the logs of such jobs. */
const MAX_LOG_BYTES = 262_144;

interface WrittenJob {
  kept: ChangedJob;
}

/** The rows of jobs that differ from memory. Removed jobs are written all together. */
export class UnwrittenRows {
  readonly #tables: Tables;
  /** Added and changed jobs. */
  #kept = new Set<ChangedJob>();
  #removed = new Set<ChangedJob>();

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** The job has changed. */
  compare(job: ChangedJob): void {
    this.#kept.delete(job);
    this.#removed.delete(job);
    if (job.now === job.stored) return;
    if (job.now) this.#kept.add(job);
    else this.#removed.add(job);
  }

  clear(): void {
    this.#kept = new Set();
    this.#removed = new Set();
  }

  /** Whether the removed jobs are many or large. */
  get hasManyRemoved(): boolean {
    if (this.#removed.size >= MAX_REMOVED) return true;
    let logBytes = 0;
    for (const { stored } of this.#removed) logBytes += stored?.logBytes ?? 0;
    return logBytes > MAX_LOG_BYTES;
  }

  *write(): Step<void> {
    // First, because an added job may have the idempotency key of a removed one.
    yield* this.#remove();
    const added: (AddedRow & WrittenJob)[] = [];
    const changed: (ChangedRow & WrittenJob)[] = [];
    for (const kept of this.#kept) {
      const { now, payloads, stored } = kept;
      if (now && stored)
        changed.push({ before: stored, after: now, output: payloads.output, kept });
      else if (now) added.push({ job: now, payloads, kept });
    }
    const { rowsAtOnce } = this.#tables;
    for (const rows of slice(changed, rowsAtOnce)) {
      yield* this.#tables.changeJobRows(rows);
      this.#noteWritten(rows);
    }
    for (const rows of slice(added, rowsAtOnce)) {
      yield* this.#tables.addJobRows(rows);
      this.#noteWritten(rows);
    }
  }

  /** From now on the rows are as in memory. */
  #noteWritten(rows: readonly WrittenJob[]): void {
    for (const { kept } of rows) {
      this.#kept.delete(kept);
      if (kept.payloads.output) kept.hasOutput = true;
      kept.payloads = NO_PAYLOADS;
      kept.stored = kept.now;
    }
  }

  *#remove(): Step<void> {
    if (this.#removed.size === 0) return;
    const removed = [...this.#removed];
    yield* this.#tables.removeJobs(removed.flatMap(({ stored }) => stored ?? []));
    for (const job of removed) {
      this.#removed.delete(job);
      job.payloads = NO_PAYLOADS;
      job.stored = undefined;
    }
  }
}

function slice<T>(rows: readonly T[], size: number): (readonly T[])[] {
  const slices: (readonly T[])[] = [];
  for (let at = 0; at < rows.length; at += size) slices.push(rows.slice(at, at + size));
  return slices;
}
