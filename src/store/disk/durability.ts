// Knows when commits are on disk: one is on its way at a time, and reads, probes and copies of the log take turns
// with it. A later call may store commits that no caller sees yet. Once the disk has failed, nothing goes on.
import { fdatasync, fdatasyncSync } from 'node:fs';
import { StoreUnavailableError } from '../store.ts';
import { nameStorageFailure, nameSystemError } from './store-failures.ts';

/** Commits that no caller sees yet are put on disk beside further commits when they have so many payload bytes. */
const EARLY_BYTES = 512 * 1_024;
/** Most payload bytes of commits that no caller sees yet and that may not be on disk: the next commit waits for them. */
const MAX_LATER_BYTES = 2 * EARLY_BYTES;

export interface DurabilityOptions {
  /** Puts the last commits, with so many payload bytes, on disk. Undefined: a commit is as durable as it gets. */
  sync: ((bytes: number) => Promise<void>) | undefined;
  /**
   * Does the same beside further commits. No commit relies on it: `sync` must fail after a failure of the disk that
   * this has reported already. Default: `sync` does all.
   */
  syncEarly?: ((bytes: number) => Promise<void>) | undefined;
  /** Called when the next transaction may begin. `isUrgent`: before anything else runs. */
  onFree: (isUrgent: boolean) => void;
  /** Called once, when the disk has failed to store something. */
  onLost: (error: unknown, lost: StoreUnavailableError) => void;
}

interface CommitOnItsWay {
  /** Its payload bytes. */
  bytes: number;
  settle: () => void;
  fail: (lost: StoreUnavailableError) => void;
}

export class Durability {
  readonly #options: DurabilityOptions;
  /** A commit on its way to the disk, or what runs alone. */
  #running: Promise<void> | undefined;
  #lost: StoreUnavailableError | undefined;
  /** Payload bytes of commits that the next call puts on disk. */
  #laterBytes = 0;
  /** Those that the call of `syncEarly` on its way puts there. */
  #earlyBytes = 0;
  #early: Promise<void> | undefined;
  /** Commits that wait because too many bytes are not on disk. */
  readonly #held: CommitOnItsWay[] = [];

  constructor(options: DurabilityOptions) {
    this.#options = options;
  }

  get isBusy(): boolean {
    return this.#running !== undefined;
  }

  /** The error of all further calls, once the disk has failed. */
  get lost(): StoreUnavailableError | undefined {
    return this.#lost;
  }

  /** Resolves when neither a commit is on its way to the disk nor anything runs alone. @throws StoreUnavailableError if the disk has failed */
  settled(): Promise<void> {
    return this.#take(() => {});
  }

  /** Runs it while no transaction is open or on its way to the disk. Operations and reads wait. */
  runAlone<T>(act: () => Promise<T>): Promise<T> {
    return this.#take(() => {
      const result = act();
      // Urgent, because the next one to run alone may be waiting as well.
      const release = () => this.#release(true);
      this.#running = result.then(release, release);
      return result;
    });
  }

  /** Runs the commit and puts it on disk. @throws what `act` throws, and StoreUnavailableError */
  async commitAlone(act: () => void): Promise<void> {
    await this.#take(() => {
      act();
      this.putOnDisk({ bytes: 0, settle: () => {}, fail: () => {} });
    });
    await this.settled();
  }

  /** Resolves when no call of `syncEarly` is on its way. */
  async ended(): Promise<void> {
    while (this.#early !== undefined) await this.#early;
  }

  /**
   * For a commit that no caller sees before a later `putOnDisk`. Calls `settle` before the commit is on disk, at once if
   * few bytes are not there; `fail` if the disk fails.
   */
  leave(commit: CommitOnItsWay): void {
    const { sync } = this.#options;
    if (sync) this.#laterBytes += commit.bytes;
    this.#startEarly();
    if (this.#laterBytes + this.#earlyBytes <= MAX_LATER_BYTES) commit.settle();
    else if (this.#early !== undefined) this.#held.push(commit);
    else this.putOnDisk({ ...commit, bytes: 0 });
  }

  #startEarly(): void {
    const { syncEarly } = this.#options;
    if (!syncEarly || this.#early !== undefined || this.#lost || this.#laterBytes < EARLY_BYTES)
      return;
    this.#earlyBytes = this.#laterBytes;
    this.#laterBytes = 0;
    this.#early = syncEarly(this.#earlyBytes).then(
      () => {
        this.#early = undefined;
        this.#earlyBytes = 0;
        for (const { settle } of this.#held.splice(0)) settle();
        this.#startEarly();
      },
      (error: unknown) => {
        this.#early = undefined;
        this.lose(error);
      },
    );
  }

  /** Calls `settle` once all commits are on disk, at once if they are; `fail` if the disk fails. */
  putOnDisk({ bytes, fail, settle }: CommitOnItsWay): void {
    const { sync } = this.#options;
    if (!sync) {
      settle();
      return;
    }
    const allBytes = this.#laterBytes + this.#earlyBytes + bytes;
    this.#laterBytes = 0;
    this.#running = sync(allBytes).then(
      () => {
        this.#release(false);
        settle();
      },
      (error: unknown) => {
        this.#running = undefined;
        const lost = describeLoss(error);
        fail(lost);
        this.lose(error, lost);
      },
    );
  }

  /**
   * The disk has failed to store something. Later attempts prove nothing: the system may report success for pages
   * that it has dropped. So the store no longer reads or writes anything, until a new process reads the disk.
   */
  lose(error: unknown, lost = describeLoss(error)): void {
    if (this.#lost) return;
    this.#lost = lost;
    for (const { fail } of this.#held.splice(0)) fail(lost);
    this.#options.onLost(error, lost);
  }

  /** Calls `act` while nothing else runs. */
  async #take<T>(act: () => T | Promise<T>): Promise<T> {
    // The caller may be an operation in an open transaction, which ends before a microtask runs.
    await undefined;
    while (this.isBusy) await this.#running;
    if (this.#lost) throw this.#lost;
    return act();
  }

  #release(isUrgent: boolean): void {
    this.#running = undefined;
    this.#options.onFree(isUrgent);
  }
}

function describeLoss(cause: unknown): StoreUnavailableError {
  const code = nameStorageFailure(cause) ?? nameSystemError(cause);
  const text = `The disk failed to store a commit (${code}); only a new start can read what the disk has`;
  return new StoreUnavailableError(text, { cause, code });
}

/** A disk that takes longer than this for one call counts as slow, ms. */
const SLOW_MS = 2;
/** Calls in the thread pool before a disk that was fast is tried again on the spot. */
const FIRST_POOLED = 50;
/** A disk that stays slow is tried after twice as many calls each time, up to this number. */
const MAX_POOLED = 3_200;
/** More bytes take a fast disk a millisecond or longer as well. */
const FEW_BYTES = 512 * 1_024;

/**
 * For a fast disk the thread pool costs more than it saves: two threads take turns, and each commit gathers fewer
 * operations. Calls in the pool are not measured: under load most of such a time is the event loop's, and a disk that
 * was slow once would count as slow for as long as the load lasts.
 */
export class FileSync {
  readonly #now: () => number;
  /** Calls left for the thread pool; 0: the next one is made on the spot. */
  #pooled = 0;
  /** Calls for the thread pool after the next slow one; 0: a slow call alone may have waited for another program. */
  #nextPooled = 0;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get isDiskSlow(): boolean {
    return this.#pooled > 0;
  }

  /** Resolves when the content of the file, about `bytes` of it new, is on disk. @throws the system's error */
  readonly run = async (descriptor: number, bytes: number): Promise<void> => {
    // The time for many bytes would not tell whether the disk is slow.
    if (bytes >= FEW_BYTES) return syncInPool(descriptor);
    if (this.#pooled > 0) {
      this.#pooled--;
      return syncInPool(descriptor);
    }
    const start = this.#now();
    fdatasyncSync(descriptor);
    this.#note(this.#now() - start);
  };

  /** A call on the spot took this long. */
  #note(ms: number): void {
    if (ms > SLOW_MS) {
      this.#pooled = this.#nextPooled;
      this.#nextPooled = Math.min(Math.max(2 * this.#pooled, FIRST_POOLED), MAX_POOLED);
    } else this.#nextPooled = 0;
  }
}

/** Resolves when the content of the file is on disk. @throws the system's error */
export function syncInPool(descriptor: number): Promise<void> {
  return new Promise((resolve, reject) => {
    fdatasync(descriptor, (error) => (error ? reject(error) : resolve()));
  });
}
