// An outbox on a simulated disk, with the rules of the outbox on a real disk. A write takes some time; if
// the process dies during it, the write is lost.
import { type Clock, sleep } from '../../src/base/clock.ts';
import type { LeaseRef } from '../../src/wire/link/worker-link.ts';
import { type BatchLimits, MemoryOutbox, type Outbox } from '../../src/worker/outbox/outbox.ts';
import {
  AttemptReports,
  type RemainingReports,
  type SentReport,
} from '../../src/worker/reports/attempt-reports.ts';

const MAX_WRITE_MS = 40;

/** A worker's folder: the undelivered reports of ended attempts, by token. */
export type Disk = Map<string, { lease: LeaseRef; remaining: RemainingReports }>;

export function readUndelivered(disk: Disk): LeaseRef[] {
  return [...disk.values()].map(({ lease }) => lease);
}

export interface KeptOutboxOptions {
  disk: Disk;
  clock: Clock;
  random: () => number;
}

export class KeptOutbox implements Outbox {
  readonly diskError = undefined;
  readonly #options: KeptOutboxOptions;
  readonly #memory = new MemoryOutbox();
  readonly #restored = new Set<AttemptReports>();
  readonly #unwritten = new Set<AttemptReports>();
  readonly #removed = new WeakSet<AttemptReports>();
  #writing: Promise<void> | undefined;
  #isDead = false;

  constructor(options: KeptOutboxOptions) {
    this.#options = options;
    for (const { lease, remaining } of options.disk.values()) {
      const attempt = AttemptReports.restore(lease, remaining);
      this.#memory.adopt(attempt);
      this.#restored.add(attempt);
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

  addAttempt(lease: LeaseRef): AttemptReports {
    return this.#memory.addAttempt(lease);
  }

  notifyChanged(attempt: AttemptReports): void {
    this.#memory.notifyChanged(attempt);
    const isWritten = this.#options.disk.has(attempt.lease.token);
    if (attempt.ended && attempt.depth > 0 && !isWritten) this.#unwritten.add(attempt);
  }

  takeBatch(limits: BatchLimits): SentReport[] {
    return this.#memory.takeBatch(limits);
  }

  /** The entry on disk is removed a little later: a successor may still find it. */
  removeAttempt(attempt: AttemptReports): void {
    const { clock, disk } = this.#options;
    this.#memory.removeAttempt(attempt);
    this.#removed.add(attempt);
    this.#restored.delete(attempt);
    this.#unwritten.delete(attempt);
    clock.after(this.#chooseWriteMs(), () => {
      if (!this.#isDead) disk.delete(attempt.lease.token);
    });
  }

  flush(): Promise<void> | undefined {
    if (this.#unwritten.size === 0) return this.#writing;
    this.#writing = this.#write();
    return this.#writing;
  }

  undelivered(): LeaseRef[] {
    return this.#memory.undelivered();
  }

  undeliveredOnDisk(): LeaseRef[] {
    return readUndelivered(this.#options.disk);
  }

  restoredAttempts(): AttemptReports[] {
    return [...this.#restored];
  }

  async #write(): Promise<void> {
    const attempts = [...this.#unwritten];
    this.#unwritten.clear();
    await sleep(this.#options.clock, this.#chooseWriteMs());
    if (this.#isDead) return;
    for (const attempt of attempts) {
      if (this.#removed.has(attempt)) continue;
      const { lease, remaining } = attempt;
      this.#options.disk.set(lease.token, { lease, remaining });
    }
  }

  #chooseWriteMs(): number {
    return Math.floor(this.#options.random() * MAX_WRITE_MS);
  }
}
