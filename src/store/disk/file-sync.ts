// How a file is put on disk: at once while the disk is fast and the bytes are few, else in the thread pool.
import { fdatasync, fdatasyncSync } from 'node:fs';

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
