// The rows of jobs that differ from memory, and how they are written: removed jobs all together.
import type { Step } from '../store.ts';
import type { AddedRow, ChangedRow, Tables } from '../tables.ts';
import { type ChangedJob, NO_PAYLOADS } from './live-endpoint.ts';

/** Removed jobs after which an operation waits for the removal of their rows: a slice of time includes it. */
const MAX_REMOVED = 32;
/** Bytes of the logs of such jobs. */
const MAX_LOG_BYTES = 262_144;

interface WrittenJob {
  kept: ChangedJob;
}

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
