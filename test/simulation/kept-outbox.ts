// An outbox on a simulated disk, with the rules of the outbox on a real disk. A write takes some time; if
// the process dies during it, the write is lost.
import { type Clock, sleep } from '../../src/base/clock.ts';
import type { LeaseRef } from '../../src/wire/link/worker-link.ts';
import { type BatchLimits, MemoryOutbox, type Outbox } from '../../src/worker/outbox/outbox.ts';
import { type LeftReports, ReportLane, type SentReport } from '../../src/worker/report-lane.ts';

const MAX_WRITE_MS = 40;

/** A worker's folder: the undelivered reports of ended attempts, by token. */
export type Disk = Map<string, { lease: LeaseRef; left: LeftReports }>;

export function readSurvivors(disk: Disk): LeaseRef[] {
  return [...disk.values()].map(({ lease }) => lease);
}

export interface KeptOutboxOptions {
  disk: Disk;
  clock: Clock;
  random: () => number;
}

export class KeptOutbox implements Outbox {
  readonly trouble = undefined;
  readonly #options: KeptOutboxOptions;
  readonly #memory = new MemoryOutbox();
  readonly #inherited = new Set<ReportLane>();
  readonly #unwritten = new Set<ReportLane>();
  readonly #closed = new WeakSet<ReportLane>();
  #writing: Promise<void> | undefined;
  #isDead = false;

  constructor(options: KeptOutboxOptions) {
    this.#options = options;
    for (const { lease, left } of options.disk.values()) {
      const lane = ReportLane.restore(lease, left);
      this.#memory.adopt(lane);
      this.#inherited.add(lane);
    }
  }

  /** The process has died: the disk no longer changes. */
  die(): void {
    this.#isDead = true;
  }

  get depth(): number {
    return this.#memory.depth;
  }

  get bytes(): number {
    return this.#memory.bytes;
  }

  open(lease: LeaseRef): ReportLane {
    return this.#memory.open(lease);
  }

  touch(lane: ReportLane): void {
    this.#memory.touch(lane);
    const isWritten = this.#options.disk.has(lane.lease.token);
    if (lane.ended && lane.depth > 0 && !isWritten) this.#unwritten.add(lane);
  }

  takeBatch(limits: BatchLimits): SentReport[] {
    return this.#memory.takeBatch(limits);
  }

  /** The entry on disk is removed a little later: a successor may still find it. */
  close(lane: ReportLane): void {
    const { clock, disk } = this.#options;
    this.#memory.close(lane);
    this.#closed.add(lane);
    this.#inherited.delete(lane);
    this.#unwritten.delete(lane);
    clock.after(this.#chooseWriteMs(), () => {
      if (!this.#isDead) disk.delete(lane.lease.token);
    });
  }

  secure(): Promise<void> | undefined {
    if (this.#unwritten.size === 0) return this.#writing;
    this.#writing = this.#write();
    return this.#writing;
  }

  undelivered(): LeaseRef[] {
    return this.#memory.undelivered();
  }

  survivors(): LeaseRef[] {
    return readSurvivors(this.#options.disk);
  }

  inherited(): ReportLane[] {
    return [...this.#inherited];
  }

  async #write(): Promise<void> {
    const lanes = [...this.#unwritten];
    this.#unwritten.clear();
    await sleep(this.#options.clock, this.#chooseWriteMs());
    if (this.#isDead) return;
    for (const lane of lanes) {
      if (this.#closed.has(lane)) continue;
      const { lease, left } = lane;
      this.#options.disk.set(lease.token, { lease, left });
    }
  }

  #chooseWriteMs(): number {
    return Math.floor(this.#options.random() * MAX_WRITE_MS);
  }
}
