// Stores the platform's time in the database, so that time does not go back if somebody sets the wall
// clock back before a restart: otherwise delays, times to live and retentions would last longer. Also
// counts how long the platform has run over all its starts.
import { z } from 'zod';
import type { ResumableClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { OWNER, type Store, type Transaction, type WriteOptions } from '../../store/store.ts';
import { LIMITS } from '../../wire/job/job.ts';

/** A write also stores the time if the last stored time is older than this, ms. */
const RECORD_EVERY_MS = 1_000;

/**
 * Longest lead of the stored time over the wall clock, ms; no job lasts longer. A stored time further
 * ahead is ignored: the wall clock was wrong at the time of the write.
 */
const MAX_LEAD_MS = LIMITS.ttlMs.max;

const KEY = { kind: 'run', id: 'time' } as const;

const record = z.object({
  /** Unix ms. */
  at: z.number(),
  /** Excludes times when the platform did not run or the machine was suspended. */
  ranMs: z.number(),
});

export interface RecordedTimeOptions {
  store: Store;
  clock: ResumableClock;
  log: Log;
}

export class RecordedTime {
  /** The store; its writes also store the time. */
  readonly store: Store;
  readonly #options: RecordedTimeOptions;
  #recordedAt = Number.NEGATIVE_INFINITY;
  /** Monotonic time at which the platform's running time was 0. */
  #ranSince: number;

  constructor(options: RecordedTimeOptions) {
    const { clock, store } = options;
    this.#options = options;
    this.#ranSince = clock.monotonic();
    this.store = {
      read: (operation) => store.read(operation),
      write: (operation, writeOptions) => this.#write(operation, writeOptions),
      reclaim: (pages) => store.reclaim(pages),
      files: store.files,
      close: () => store.close(),
    };
  }

  /** Run time of the platform over all its starts, ms. */
  ranMs = (): number => Math.floor(this.#options.clock.monotonic() - this.#ranSince);

  /** Moves the clock forward to the stored time. @returns whether the wall clock was behind it */
  async resume(): Promise<boolean> {
    const { clock, log, store } = this.#options;
    const found = await store.read((tx) => tx.resource(KEY));
    if (!found) return false;
    const { at, ranMs } = record.parse(JSON.parse(found.body));
    this.#ranSince = clock.monotonic() - ranMs;
    const leadMs = at - clock.now();
    if (leadMs <= 0) return false;
    if (leadMs > MAX_LEAD_MS) {
      log.error(
        { leadMs },
        'recorded time is too far ahead of the system clock, ignoring it; jobs may wait longer',
      );
      return true;
    }
    // The platform may have run this long after the last stored time.
    clock.startFrom(at + RECORD_EVERY_MS);
    log.warn({ leadMs }, 'system clock was set back, continuing from the recorded time');
    return true;
  }

  #write<T>(operation: (tx: Transaction) => T, options: WriteOptions | undefined): Promise<T> {
    const { clock, store } = this.#options;
    const isDue = clock.now() - this.#recordedAt >= RECORD_EVERY_MS;
    return isDue ? this.#writeAndRecord(operation, options) : store.write(operation, options);
  }

  async #writeAndRecord<T>(
    operation: (tx: Transaction) => T,
    options: WriteOptions | undefined,
  ): Promise<T> {
    const { clock, store } = this.#options;
    const at = clock.now();
    this.#recordedAt = at;
    const body = JSON.stringify({ at, ranMs: this.ranMs() });
    try {
      return await store.write((tx) => {
        const result = operation(tx);
        tx.putResource({ ...KEY, userId: OWNER, parent: '', position: 0, body });
        return result;
      }, options);
    } catch (error) {
      // Nothing was recorded.
      this.#recordedAt = Number.NEGATIVE_INFINITY;
      throw error;
    }
  }
}
