// Holds reports until the platform has acknowledged them: the lanes of all attempts, from which
// batches are made. This outbox is in memory and ends with the process; disk-outbox.ts survives it.
import type { LeaseRef, TracedLeaseRef } from '../../wire/link/worker-link.ts';
import { ReportLane, type SentReport } from '../report-lane.ts';

export interface BatchLimits {
  maxReports: number;
  /** Bytes of bodies; a single larger report travels alone. */
  maxBytes: number;
  /** Chunks of all reports; a single report with more travels alone. Default: no limit. */
  maxChunks?: number;
  /** Takes only reports of this lane. */
  only?: ReportLane;
}

export interface Outbox {
  /** Number of unacknowledged reports. */
  readonly depth: number;
  /** Bytes of their bodies. */
  readonly bytes: number;
  open(lease: TracedLeaseRef): ReportLane;
  /** Call it after reports were added to the lane, or after it began to resend. */
  touch(lane: ReportLane): void;
  /**
   * Returns the next reports that are not being sent, in order within each attempt; may be empty.
   */
  takeBatch(limits: BatchLimits): SentReport[];
  /** Removes the attempt and its remaining reports. */
  close(lane: ReportLane): void;
  /**
   * Resolves when every outcome touched so far is on disk, or cannot be stored; never rejects.
   * Undefined if there is nothing to wait for.
   */
  secure(): Promise<void> | undefined;
  /** Ended attempts whose outcome is not acknowledged. */
  undelivered(): LeaseRef[];
  /** Unacknowledged attempts, of this and earlier processes, that a later process could deliver. */
  survivors(): LeaseRef[];
  /**
   * Lanes that an earlier process left and that are not acknowledged; each must be touched once.
   */
  inherited(): ReportLane[];
  /** Why reports are only in memory although a disk outbox was requested. */
  readonly trouble: string | undefined;
}

export class MemoryOutbox implements Outbox {
  readonly #lanes = new Set<ReportLane>();
  /** Lanes with reports to send, in order of arrival. */
  readonly #ready = new Set<ReportLane>();
  readonly trouble: string | undefined;

  /** `trouble`: the reason why this outbox replaces one on disk. */
  constructor({ trouble }: { trouble?: string } = {}) {
    this.trouble = trouble;
  }

  get depth(): number {
    let depth = 0;
    for (const lane of this.#lanes) depth += lane.depth;
    return depth;
  }

  get bytes(): number {
    let bytes = 0;
    for (const lane of this.#lanes) bytes += lane.bytes;
    return bytes;
  }

  open(lease: TracedLeaseRef): ReportLane {
    const lane = new ReportLane(lease);
    this.adopt(lane);
    return lane;
  }

  /** Adds an existing lane; its reports wait until it is touched. */
  adopt(lane: ReportLane): void {
    this.#lanes.add(lane);
  }

  touch(lane: ReportLane): void {
    if (lane.waiting > 0 && this.#lanes.has(lane)) this.#ready.add(lane);
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
    for (const lane of only ? (isReady ? [only] : []) : this.#ready) {
      while (lane.waiting > 0) {
        bytes += lane.nextBytes;
        chunks += lane.nextChunks;
        const isFull = batch.length >= maxReports || bytes > maxBytes || chunks > maxChunks;
        if (isFull && batch.length > 0) return batch;
        const sentReport = lane.takeNext();
        if (sentReport) batch.push(sentReport);
      }
      this.#ready.delete(lane);
    }
    return batch;
  }

  close(lane: ReportLane): void {
    this.#lanes.delete(lane);
    this.#ready.delete(lane);
  }

  undelivered(): LeaseRef[] {
    return [...this.#lanes].filter((lane) => lane.ended).map((lane) => lane.lease);
  }

  secure(): Promise<void> | undefined {
    return undefined;
  }

  survivors(): LeaseRef[] {
    return [];
  }

  inherited(): ReportLane[] {
    return [];
  }
}
