// Where reports wait until the platform has acknowledged them: the lanes of all attempts, and what
// the next batch is made of. This one lives in memory and dies with the process; the one in
// disk-outbox.ts does not.
import type { LeaseRef, TracedLeaseRef } from '../../wire/link/worker-link.ts';
import { type Parcel, ReportLane } from '../report-lane.ts';

export interface BatchLimits {
  maxReports: number;
  /** Of bodies; a single report above it goes alone. */
  maxBytes: number;
  /** Of all reports; a single report above it goes alone. Default: as many as there are. */
  maxChunks?: number;
  /** Reports of this lane and no other. */
  only?: ReportLane;
}

export interface Outbox {
  /** Reports not yet acknowledged. */
  readonly depth: number;
  /** Bytes of their bodies. */
  readonly bytes: number;
  open(lease: TracedLeaseRef): ReportLane;
  /** Something was added to the lane, or it began anew. */
  touch(lane: ReportLane): void;
  /** The next reports that are not under way, in order within each attempt; [] if there are none. */
  takeBatch(limits: BatchLimits): Parcel[];
  /** Forgets the attempt and what is left of its reports. */
  close(lane: ReportLane): void;
  /**
   * Resolves when every outcome that was touched so far outlives the process, or cannot be made to;
   * never rejects. Undefined if there is nothing to wait for.
   */
  secure(): Promise<void> | undefined;
  /** Attempts that are over and whose outcome has not been acknowledged. */
  undelivered(): LeaseRef[];
  /** Those of them, and of an earlier process, that a process after this one can deliver. */
  survivors(): LeaseRef[];
  /** What an earlier process left, as far as it has not been acknowledged: to be touched once. */
  inherited(): ReportLane[];
  /** Why reports do not outlive the process, though they ought to. */
  readonly trouble: string | undefined;
}

export class MemoryOutbox implements Outbox {
  readonly #lanes = new Set<ReportLane>();
  /** Lanes with something to send, first come, first served. */
  readonly #ready = new Set<ReportLane>();
  readonly trouble: string | undefined;

  /** With the reason if it stands in for one that was to outlive the process. */
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

  /** Takes a lane that was made elsewhere; its reports wait until it is touched. */
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
  }: BatchLimits): Parcel[] {
    const batch: Parcel[] = [];
    let bytes = 0;
    let chunks = 0;
    const isReady = only !== undefined && this.#ready.has(only);
    for (const lane of only ? (isReady ? [only] : []) : this.#ready) {
      while (lane.waiting > 0) {
        bytes += lane.nextBytes;
        chunks += lane.nextChunks;
        const isFull = batch.length >= maxReports || bytes > maxBytes || chunks > maxChunks;
        if (isFull && batch.length > 0) return batch;
        const parcel = lane.takeNext();
        if (parcel) batch.push(parcel);
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
