// An outbox that survives its process: reports of ended attempts are in a journal until the
// platform has acknowledged their outcome. If the disk fails, it continues in memory. Reports of
// running attempts are not written, because chunks are useless without an outcome.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { LeaseRef, TracedLeaseRef } from '../../wire/link/worker-link.ts';
import type { AttemptReports, SentReport } from '../reports/attempt-reports.ts';
import { countBytes, Journal } from './journal.ts';
import { type BatchLimits, MemoryOutbox, type Outbox } from './outbox.ts';
import {
  encodeDone,
  encodeReports,
  FoundAttempts,
  locateJournal,
  MAX_TOTAL_HEADER_BYTES,
  type OutboxEntry,
  restoreAttempts,
  warnOfSize,
} from './outbox-entries.ts';

/** Several times the outbox size at which a worker takes no more jobs. */
const MAX_RESTORED_BYTES = 256 * 1_048_576;
/** A failed disk is tried again after this time, ms. */
const RETRY_MS = 1_000;

export interface DiskOutboxOptions {
  folder: string;
  clock: Clock;
  log: Log;
  /**
   * The journal is rewritten when it is larger than this and less than half of it is needed.
   * Default 64 MB.
   */
  compactAboveBytes?: number;
  /**
   * Most bytes of records that are read at the start; the first attempt is read even if it is
   * larger. The others stay in the file for a later start. Default 256 MB.
   */
  maxRestoredBytes?: number;
  /** Most bytes of the headers of all attempts found at the start. Default 32 MB. */
  maxHeaderBytes?: number;
}

export class DiskOutbox implements Outbox {
  readonly #clock: Clock;
  readonly #log: Log;
  #compactAboveBytes: number;
  readonly #memory = new MemoryOutbox();
  readonly #restored = new Set<AttemptReports>();
  /** Attempts in the journal, with their bytes there. */
  readonly #written = new Map<AttemptReports, number>();
  readonly #unwritten = new Set<AttemptReports>();
  /** Complete attempts in the journal that are not read. */
  #unread: LeaseRef[] = [];
  #isPartlyRead = false;
  /** Tokens of attempts to be marked as done in the journal. */
  #done: string[] = [];
  #journal: Journal | undefined;
  #diskError: string | undefined;
  /** Set while a failed disk is not used. */
  #cancelRetry: (() => void) | undefined;
  #running: Promise<void> | undefined;
  /** The current write, if it contains outcomes; `flush` waits for it. */
  #flushing: Promise<void> | undefined;
  #whenFlushed: (() => void)[] = [];

  private constructor({ clock, log, compactAboveBytes = 64 * 1_048_576 }: DiskOutboxOptions) {
    this.#clock = clock;
    this.#log = log;
    this.#compactAboveBytes = compactAboveBytes;
  }

  /**
   * Reads the outcomes that an earlier process left. Never rejects: without a journal, the outbox
   * is only in memory.
   */
  static async open(options: DiskOutboxOptions): Promise<DiskOutbox> {
    const outbox = new DiskOutbox(options);
    const { folder, maxHeaderBytes } = options;
    const found = new FoundAttempts({ maxHeaderBytes });
    try {
      const { journal, tornBytes } = await Journal.open<OutboxEntry>(
        locateJournal(folder),
        (record) => found.add(record),
      );
      if (tornBytes > 0) options.log.warn({ tornBytes }, 'incomplete end of the outbox removed');
      await outbox.#restore(journal, found, options);
    } catch (error) {
      outbox.#noteDiskError(error);
    }
    return outbox;
  }

  get diskError(): string | undefined {
    return this.#diskError;
  }

  get depth(): number {
    return this.#memory.depth;
  }

  get bytes(): number {
    return this.#memory.bytes;
  }

  addAttempt(lease: TracedLeaseRef): AttemptReports {
    return this.#memory.addAttempt(lease);
  }

  notifyChanged(attempt: AttemptReports): void {
    this.#memory.notifyChanged(attempt);
    if (!attempt.ended || attempt.depth === 0 || this.#written.has(attempt)) return;
    this.#unwritten.add(attempt);
    this.#wake();
  }

  takeBatch(limits: BatchLimits): SentReport[] {
    return this.#memory.takeBatch(limits);
  }

  removeAttempt(attempt: AttemptReports): void {
    this.#memory.removeAttempt(attempt);
    this.#restored.delete(attempt);
    this.#unwritten.delete(attempt);
    if (!this.#written.delete(attempt)) return;
    this.#done.push(attempt.lease.token);
    this.#wake();
  }

  flush(): Promise<void> | undefined {
    if (!this.#canWrite || this.#unwritten.size === 0) return this.#flushing;
    return new Promise((resolve) => {
      this.#whenFlushed.push(resolve);
    });
  }

  undelivered(): LeaseRef[] {
    return this.#memory.undelivered();
  }

  undeliveredOnDisk(): LeaseRef[] {
    return [...[...this.#written.keys()].map((attempt) => attempt.lease), ...this.#unread];
  }

  /** The journal has more than this outbox has read, so the folder must stay. */
  get isPartlyRead(): boolean {
    return this.#isPartlyRead;
  }

  restoredAttempts(): AttemptReports[] {
    return [...this.#restored];
  }

  /**
   * Writes the waiting reports, unless the disk fails, and closes the file. Add nothing afterwards.
   */
  async close(): Promise<void> {
    this.#cancelRetry?.();
    await this.#running;
    const journal = this.#journal;
    this.#journal = undefined;
    await journal?.close();
  }

  async #restore(
    journal: Journal,
    found: FoundAttempts,
    {
      folder,
      maxHeaderBytes = MAX_TOTAL_HEADER_BYTES,
      maxRestoredBytes = MAX_RESTORED_BYTES,
    }: DiskOutboxOptions,
  ): Promise<void> {
    const { complete, cutOff, hasSkipped } = found;
    const { restored, unread } = await restoreAttempts(journal, complete, maxRestoredBytes);
    for (const [attempt, bytes] of restored) {
      this.#memory.adopt(attempt);
      this.#restored.add(attempt);
      this.#written.set(attempt, bytes);
    }
    this.#journal = journal;
    this.#unread = unread;
    this.#isPartlyRead = hasSkipped || unread.length > 0;
    if (this.#isPartlyRead) {
      const maxBytes = hasSkipped ? maxHeaderBytes : maxRestoredBytes;
      warnOfSize(this.#log, locateJournal(folder), maxBytes);
    }
    if (cutOff.length > 0) {
      this.#log.warn({ attempts: cutOff }, 'attempts without an outcome dropped from the outbox');
    }
    if (complete.length > 0) {
      const attempts = complete.length;
      this.#log.info({ attempts }, 'outcomes of an earlier process found in the outbox');
    }
    this.#wake();
  }

  get #canWrite(): boolean {
    return this.#journal !== undefined && this.#cancelRetry === undefined;
  }

  get #hasWork(): boolean {
    return this.#unwritten.size > 0 || this.#done.length > 0 || this.#canClear;
  }

  /** The journal has records, but none of them is needed. */
  get #canClear(): boolean {
    if (this.#isPartlyRead || this.#written.size > 0) return false;
    return this.#journal?.isEmpty === false;
  }

  #wake(): void {
    if (this.#running || !this.#canWrite) return;
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    // Attempts that end in the same iteration of the event loop share the write.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#canWrite && this.#hasWork) await this.#write();
    this.#running = undefined;
  }

  async #write(): Promise<void> {
    const attempts = [...this.#unwritten];
    const done = this.#done;
    const whenFlushed = this.#whenFlushed;
    this.#unwritten.clear();
    this.#done = [];
    this.#whenFlushed = [];
    const work = this.#writeOut(attempts, done).then(
      () => this.#noteSuccess(),
      (error: unknown) => {
        // Attempts that are no longer in `#written` were removed meanwhile.
        for (const attempt of attempts)
          if (this.#written.delete(attempt)) this.#unwritten.add(attempt);
        this.#done = [...done, ...this.#done];
        this.#noteDiskError(error);
      },
    );
    if (attempts.length > 0) this.#flushing = work;
    await work;
    this.#flushing = undefined;
    for (const resolve of whenFlushed) resolve();
  }

  async #writeOut(attempts: readonly AttemptReports[], done: readonly string[]): Promise<void> {
    const journal = this.#journal;
    if (!journal) return;
    if (attempts.length === 0 && this.#written.size === 0 && !this.#isPartlyRead)
      return journal.clear();
    const pieces = done.flatMap(encodeDone);
    for (const attempt of attempts) pieces.push(...this.#encodeAttempt(attempt));
    await journal.append(pieces, { isDurable: attempts.length > 0 });
    if (journal.bytes > this.#compactAboveBytes) await this.#compact(journal);
  }

  async #compact(journal: Journal): Promise<void> {
    if (this.#isPartlyRead) return;
    let liveBytes = 0;
    for (const bytes of this.#written.values()) liveBytes += bytes;
    if (liveBytes * 2 >= journal.bytes) return;
    const attempts = [...this.#written.keys()];
    try {
      await journal.rewrite(attempts.flatMap((attempt) => this.#encodeAttempt(attempt)));
    } catch (error) {
      // The journal's content stays valid; the file is only larger than necessary.
      this.#compactAboveBytes = journal.bytes * 2;
      this.#log.warn({ err: error, bytes: journal.bytes }, 'compacting the outbox failed');
    }
  }

  #encodeAttempt(attempt: AttemptReports): Uint8Array[] {
    const pieces = encodeReports(attempt.remaining);
    this.#written.set(attempt, countBytes(pieces));
    return pieces;
  }

  #noteSuccess(): void {
    if (this.#diskError === undefined) return;
    this.#diskError = undefined;
    this.#log.info('outbox on disk works again');
  }

  #noteDiskError(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    const isNews = this.#diskError === undefined;
    this.#diskError = `outbox on disk failed: ${reason}`;
    this.#log[isNews ? 'error' : 'debug'](
      { err: error },
      'outbox on disk failed, undelivered outcomes are in memory only',
    );
    if (!this.#journal) return;
    this.#cancelRetry = this.#clock.after(RETRY_MS, () => {
      this.#cancelRetry = undefined;
      this.#wake();
    });
  }
}
