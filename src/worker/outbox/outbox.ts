// Holds reports until the platform has acknowledged them: one `AttemptReports` for each attempt,
// from which it makes batches. This outbox is in memory and ends with the process; disk-outbox.ts
// survives it.
import type { LeaseRef, TracedLeaseRef } from '../../wire/link/worker-link.ts';
import { AttemptReports, type SentReport } from '../reports/attempt-reports.ts';

export interface BatchLimits {
  maxReports: number;
  /** Bytes of bodies; a single larger report travels alone. */
  maxBytes: number;
  /** Chunks of all reports; a single report with more travels alone. Default: no limit. */
  maxChunks?: number;
  /** Takes only reports of this attempt. */
  only?: AttemptReports;
}

export interface Outbox {
  /** Number of unacknowledged reports. */
  readonly depth: number;
  /** Bytes of their bodies. */
  readonly bytes: number;
  addAttempt(lease: TracedLeaseRef): AttemptReports;
  /**
   * Call it after you added reports to the attempt, or made it resend: it queues the attempt for
   * `takeBatch`, and an ended attempt for the disk.
   */
  notifyChanged(attempt: AttemptReports): void;
  /**
   * Returns the next reports that are not being sent, in order within each attempt; may be empty.
   */
  takeBatch(limits: BatchLimits): SentReport[];
  /** Removes the attempt and its remaining reports. */
  removeAttempt(attempt: AttemptReports): void;
  /**
   * Resolves when every outcome notified so far is on disk, or its write has failed: it is then
   * only in memory, and `diskError` says why. Never rejects. Undefined if no write is pending.
   */
  flush(): Promise<void> | undefined;
  /** Ended attempts in memory whose outcome is not acknowledged. */
  undelivered(): LeaseRef[];
  /**
   * Ended attempts in the journal whose outcome is not acknowledged, of this and earlier processes:
   * a later process can deliver them.
   */
  undeliveredOnDisk(): LeaseRef[];
  /**
   * Attempts of an earlier process, read from the journal and not acknowledged yet. Call
   * `notifyChanged` once with each to send its reports.
   */
  restoredAttempts(): AttemptReports[];
  /**
   * The disk's last error, because of which outcomes are only in memory. Undefined while the disk
   * works, and if no disk is in use.
   */
  readonly diskError: string | undefined;
}

export class MemoryOutbox implements Outbox {
  readonly #attempts = new Set<AttemptReports>();
  /** Attempts with reports to send, in order of arrival. */
  readonly #ready = new Set<AttemptReports>();
  readonly diskError: string | undefined;

  /** `diskError`: the error because of which this outbox replaces one on disk. */
  constructor({ diskError }: { diskError?: string } = {}) {
    this.diskError = diskError;
  }

  get depth(): number {
    let depth = 0;
    for (const attempt of this.#attempts) depth += attempt.depth;
    return depth;
  }

  get bytes(): number {
    let bytes = 0;
    for (const attempt of this.#attempts) bytes += attempt.bytes;
    return bytes;
  }

  addAttempt(lease: TracedLeaseRef): AttemptReports {
    const attempt = new AttemptReports(lease);
    this.adopt(attempt);
    return attempt;
  }

  /** Adds an existing attempt; its reports wait until `notifyChanged`. */
  adopt(attempt: AttemptReports): void {
    this.#attempts.add(attempt);
  }

  notifyChanged(attempt: AttemptReports): void {
    if (attempt.waiting > 0 && this.#attempts.has(attempt)) this.#ready.add(attempt);
  }

  takeBatch({
    maxBytes,
    maxChunks = Number.POSITIVE_INFINITY,
    maxReports,
    only,
  }: BatchLimits): SentReport[] {
    const batch: SentReport[] = [];
    let bytes = 0;
    let chunks = 0;
    const isReady = only !== undefined && this.#ready.has(only);
    for (const attempt of only ? (isReady ? [only] : []) : this.#ready) {
      while (attempt.waiting > 0) {
        bytes += attempt.nextBytes;
        chunks += attempt.nextChunks;
        const isFull = batch.length >= maxReports || bytes > maxBytes || chunks > maxChunks;
        if (isFull && batch.length > 0) return batch;
        const sentReport = attempt.takeNext();
        if (sentReport) batch.push(sentReport);
      }
      this.#ready.delete(attempt);
    }
    return batch;
  }

  removeAttempt(attempt: AttemptReports): void {
    this.#attempts.delete(attempt);
    this.#ready.delete(attempt);
  }

  undelivered(): LeaseRef[] {
    return [...this.#attempts].filter((attempt) => attempt.ended).map((attempt) => attempt.lease);
  }

  flush(): Promise<void> | undefined {
    return undefined;
  }

  undeliveredOnDisk(): LeaseRef[] {
    return [];
  }

  restoredAttempts(): AttemptReports[] {
    return [];
  }
}
