// The rows of jobs that differ from memory, and how they are written: removed jobs all together.
import type { Step } from '../store.ts';
import type { AddedRow, ChangedRow, Tables } from '../tables.ts';
import type { ChangedJob, LiveEndpoint } from './live-endpoint.ts';

/** Removed jobs after which an operation waits for the removal of their rows: a slice of time includes it. */
const MAX_REMOVED = 32;
/** Bytes of the logs of such jobs. */
const MAX_LOG_BYTES = 262_144;

interface KeptJob {
  kept: ChangedJob;
  live: LiveEndpoint;
}

export class UnwrittenRows {
  readonly #tables: Tables;
  /** Added and changed jobs, with their endpoints. */
  #kept = new Map<ChangedJob, LiveEndpoint>();
  #removed = new Map<ChangedJob, LiveEndpoint>();

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** The job changed, in memory or in the database. */
  compare(live: LiveEndpoint, job: ChangedJob): void {
    if (job.now === job.stored) {
      this.#kept.delete(job);
      this.#removed.delete(job);
    } else if (job.now) {
      this.#removed.delete(job);
      this.#kept.set(job, live);
    } else {
      this.#kept.delete(job);
      this.#removed.set(job, live);
    }
  }

  clear(): void {
    this.#kept = new Map();
    this.#removed = new Map();
  }

  /** Whether the removed jobs are many or large. */
  get hasManyRemoved(): boolean {
    if (this.#removed.size >= MAX_REMOVED) return true;
    let logBytes = 0;
    for (const { stored } of this.#removed.keys()) logBytes += stored?.logBytes ?? 0;
    return logBytes > MAX_LOG_BYTES;
  }

  /** Calls `onWritten` with each job whose row is as in memory from now on. */
  *write(onWritten: (live: LiveEndpoint, job: ChangedJob) => void): Step<void> {
    // First, because an added job may have the idempotency key of a removed one.
    yield* this.#remove(onWritten);
    const added: (AddedRow & KeptJob)[] = [];
    const changed: (ChangedRow & KeptJob)[] = [];
    for (const [kept, live] of this.#kept) {
      const { now, payloads, stored } = kept;
      if (now && stored) {
        changed.push({ before: stored, after: now, output: payloads.output, kept, live });
      } else if (now) added.push({ job: now, payloads, kept, live });
    }
    const { rowsAtOnce } = this.#tables;
    for (const rows of slice(changed, rowsAtOnce)) {
      yield* this.#tables.changeJobRows(rows);
      this.#noteWritten(rows, onWritten);
    }
    for (const rows of slice(added, rowsAtOnce)) {
      yield* this.#tables.addJobRows(rows);
      this.#noteWritten(rows, onWritten);
    }
  }

  #noteWritten(
    jobs: readonly KeptJob[],
    onWritten: (live: LiveEndpoint, job: ChangedJob) => void,
  ): void {
    for (const { kept, live } of jobs) {
      this.#kept.delete(kept);
      onWritten(live, kept);
    }
  }

  *#remove(onWritten: (live: LiveEndpoint, job: ChangedJob) => void): Step<void> {
    if (this.#removed.size === 0) return;
    const removed = [...this.#removed];
    const jobs = removed.map(([{ stored }]) => stored).filter((job) => job !== undefined);
    yield* this.#tables.removeJobs(jobs);
    for (const [job, live] of removed) {
      this.#removed.delete(job);
      onWritten(live, job);
    }
  }
}

function slice<T>(rows: readonly T[], size: number): (readonly T[])[] {
  const slices: (readonly T[])[] = [];
  for (let at = 0; at < rows.length; at += size) slices.push(rows.slice(at, at + size));
  return slices;
}
