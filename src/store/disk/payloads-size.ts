// Measures the files of large payloads, one file at a time in the thread pool.
import { lstat, opendir } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';

/** Shortest time between the starts of two walks, ms: each one asks the system for every file. */
const WALK_EVERY_MS = 60_000;

export interface PayloadsSizeOptions {
  /** May be missing. */
  folder: string;
  clock: Clock;
  /** Ends a walk. */
  signal: AbortSignal;
}

export class PayloadsSize {
  readonly #options: PayloadsSizeOptions;
  #bytes = 0;
  #startedAt: number | undefined;
  #walking: Promise<void> | undefined;

  constructor(options: PayloadsSizeOptions) {
    this.#options = options;
  }

  /** As of the last complete walk; 0 before. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Begins a walk unless one runs or the last one began less than a minute ago. */
  refresh(): void {
    const now = this.#options.clock.now();
    const startedAt = this.#startedAt ?? Number.NEGATIVE_INFINITY;
    if (this.#walking || (now >= startedAt && now - startedAt < WALK_EVERY_MS)) return;
    this.#startedAt = now;
    this.#walking = this.#walk().finally(() => {
      this.#walking = undefined;
    });
  }

  /** Resolves when no walk runs. */
  async settle(): Promise<void> {
    await this.#walking;
  }

  async #walk(): Promise<void> {
    try {
      const bytes = await sumFiles(this.#options);
      if (bytes !== undefined) this.#bytes = bytes;
    } catch (error) {
      // The folder comes with the first payload. Without another answer, the last size stays.
      if (isMissing(error)) this.#bytes = 0;
    }
  }
}

/** Undefined if it was aborted. */
async function sumFiles({ folder, signal }: PayloadsSizeOptions): Promise<number | undefined> {
  let sum = 0;
  for await (const entry of await opendir(folder)) {
    if (signal.aborted) return undefined;
    if (entry.isFile()) sum += await readSize(`${folder}/${entry.name}`);
  }
  return sum;
}

/** 0 if the file has been removed meanwhile. */
async function readSize(path: string): Promise<number> {
  try {
    return (await lstat(path)).size;
  } catch (error) {
    if (isMissing(error)) return 0;
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
