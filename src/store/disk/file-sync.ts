// How a file is put on disk: at once while the disk is fast, else in the thread pool.
import { fdatasync, fdatasyncSync } from 'node:fs';

/** A disk that takes longer than this for one call counts as slow, ms. */
const SLOW_MS = 2;
/** A slow disk counts as fast again after this many calls in a row that were not slow. */
const FAST_CALLS = 50;

/**
 * For a fast disk the thread pool costs more than it saves: two threads take turns, and each commit gathers fewer
 * operations.
 */
export class FileSync {
  readonly #now: () => number;
  /** Calls until the disk counts as fast; 0: it does. */
  #slowCalls = 0;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get isDiskSlow(): boolean {
    return this.#slowCalls > 0;
  }

  /** Resolves when the content of the file is on disk. @throws the system's error */
  readonly run = async (descriptor: number): Promise<void> => {
    const start = this.#now();
    if (this.isDiskSlow) await syncInPool(descriptor);
    else fdatasyncSync(descriptor);
    this.note(this.#now() - start);
  };

  /** A call took this long. */
  note(ms: number): void {
    this.#slowCalls = ms > SLOW_MS ? FAST_CALLS : Math.max(0, this.#slowCalls - 1);
  }
}

function syncInPool(descriptor: number): Promise<void> {
  return new Promise((resolve, reject) => {
    fdatasync(descriptor, (error) => (error ? reject(error) : resolve()));
  });
}
