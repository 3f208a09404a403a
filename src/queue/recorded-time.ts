// The time that the platform has recorded on disk, and its absence: the time in which no platform ran.
import { z } from 'zod';
import type { Clock, ResumableClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import {
  ENDING,
  OWNER,
  type Store,
  StoreUnavailableError,
  type Transaction,
  type WriteOptions,
} from '../store/store.ts';
import { LIMITS } from '../wire/job/job.ts';

/** A write also stores the time if the last stored time is older than this, ms. */
const RECORD_EVERY_MS = 1_000;

/**
 * Longest lead of the stored time over the wall clock, ms; no job lasts longer. A stored time further
 * ahead is ignored: the wall clock was wrong at the time of the write.
 */
const MAX_LEAD_MS = LIMITS.ttlMs.max;

const TIME_KEY = { kind: 'run', id: 'time' } as const;

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
    const found = await store.read((tx) => tx.resource(TIME_KEY));
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
        tx.putResource({ ...TIME_KEY, userId: OWNER, parent: '', position: 0, body });
        return result;
      }, options);
    } catch (error) {
      // Nothing was recorded.
      this.#recordedAt = Number.NEGATIVE_INFINITY;
      throw error;
    }
  }
}

/** A restart within this time is no absence, ms: workers repeat a call only after that time. */
const BRIDGED_MS = 2_000;

const STOP_KEY = { kind: 'run', id: 'last' } as const;

const note = z.object({
  /** When the run stopped as requested, Unix ms; null while it runs, or if it was killed. */
  leftAt: z.number().nullable(),
  /** Tokens of attempts whose workers were asked to send the current chunk again later. */
  bridged: z.array(z.string()),
});

type Note = z.infer<typeof note>;

export interface AbsenceOptions {
  store: Store;
  clock: Clock;
  log: Log;
}

export class Absence {
  readonly #options: AbsenceOptions;
  #until = 0;
  /** Tokens of attempts that lost nothing in the last absence. */
  #bridged: ReadonlySet<string> = new Set();
  #leftAt: number | null = null;
  #next: Note | undefined;
  #isNoted = false;

  constructor(options: AbsenceOptions) {
    this.#options = options;
  }

  /** Whether the platform was away while the attempt ran, so reports of the attempt may be lost. */
  isBroken({ startedAt, token }: { startedAt: number; token: string }): boolean {
    return startedAt < this.#until && !this.#bridged.has(token);
  }

  /**
   * Ends the absence: a run begins. `wasSetBack`: the wall clock went back, so the duration of the
   * absence is unknown.
   */
  async end({ wasSetBack = false } = {}): Promise<void> {
    const { clock, store } = this.#options;
    const found = await store.read((tx) => tx.resource(STOP_KEY));
    const last = found && note.parse(JSON.parse(found.body));
    this.#until = clock.now();
    this.#leftAt = wasSetBack || !last ? null : last.leftAt;
    this.#bridged = new Set(last?.bridged);
    this.reached();
    await this.#write({ leftAt: null, bridged: [] });
  }

  /** Callers reach the platform from now on. If the absence was too long, no attempt was bridged. */
  reached(): void {
    const attempts = this.#bridged.size;
    if (attempts === 0) return;
    const awayMs = this.#leftAt === null ? Number.POSITIVE_INFINITY : this.#now() - this.#leftAt;
    if (awayMs >= 0 && awayMs <= BRIDGED_MS) return;
    this.#bridged = new Set();
    this.#options.log.warn(
      { attempts },
      'restart took too long, RunPod workers may have lost chunks',
    );
  }

  /**
   * The run stops as asked. The workers of these attempts have just been told to send again later;
   * other workers may send while the platform is away.
   */
  bridge(tokens: readonly string[]): void {
    this.#next = { leftAt: this.#now(), bridged: [...tokens] };
  }

  /** Begins an absence: the run has stopped as asked. */
  async begin(): Promise<void> {
    if (!this.#isNoted) return;
    this.#isNoted = false;
    await this.#write(this.#next ?? { leftAt: this.#now(), bridged: [] });
  }

  #now(): number {
    return this.#options.clock.now();
  }

  /** If the write fails, the next run finds an older note and counts this time as an absence. */
  async #write(body: Note): Promise<void> {
    const { log, store } = this.#options;
    const stored = {
      ...STOP_KEY,
      userId: OWNER,
      parent: '',
      position: 0,
      body: JSON.stringify(body),
    };
    try {
      await store.write((tx) => tx.putResource(stored), ENDING);
      this.#isNoted = body.leftAt === null;
    } catch (error) {
      // A failure at the end is harmless: the next run counts this time as an absence.
      const isEnd = body.leftAt !== null;
      if (!isEnd && !(error instanceof StoreUnavailableError)) throw error;
      log.warn({ err: error }, 'writing the shutdown note failed');
    }
  }
}
