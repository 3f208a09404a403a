// Writes files of history to a folder of this machine: each is there as a whole or not at all, also after a power failure.
// Removes those that have been kept for long enough.
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { HistoryTarget } from '../../queue/history/history-files.ts';

const DAY_MS = 86_400_000;
const FOLDER_MODE = 0o700;
const FILE_MODE = 0o600;
const DATE = /^date=(\d{4}-\d{2}-\d{2})$/;

interface FolderTargetOptions {
  /** Absolute. */
  folder: string;
  /** Days for which files are kept. Undefined: without an end. */
  keepDays: number | undefined;
  now: () => number;
}

export class FolderTarget implements HistoryTarget {
  readonly #options: FolderTargetOptions;
  #tidiedAt = Number.NEGATIVE_INFINITY;

  constructor(options: FolderTargetOptions) {
    this.#options = options;
  }

  async put(name: string, content: Uint8Array, signal: AbortSignal): Promise<void> {
    const path = join(this.#options.folder, name);
    const folder = dirname(path);
    const created = await mkdir(folder, { recursive: true, mode: FOLDER_MODE });
    // Always the same: the platform puts a file that a kill broke off again, and so replaces what is left of it.
    const written = `${path}.new`;
    try {
      const file = await open(written, 'w', FILE_MODE);
      try {
        await file.writeFile(content, { signal });
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(written, path);
    } catch (error) {
      await rm(written, { force: true });
      throw error;
    }
    // The names of new folders are on disk once their own folders are.
    for (let each = folder; ; each = dirname(each)) {
      await syncFolder(each);
      if (created === undefined || each === dirname(created)) break;
    }
    await this.#tidy();
  }

  async close(): Promise<void> {}

  /** At most once an hour. */
  async #tidy(): Promise<void> {
    const { folder, keepDays, now } = this.#options;
    if (keepDays === undefined || now() < this.#tidiedAt + DAY_MS / 24) return;
    this.#tidiedAt = now();
    const oldest = new Date(now() - keepDays * DAY_MS).toISOString().slice(0, 10);
    for (const endpoint of await readdir(folder)) {
      if (!endpoint.startsWith('endpoint=')) continue;
      for (const date of await readdir(join(folder, endpoint))) {
        const [, day] = DATE.exec(date) ?? [];
        if (day !== undefined && day < oldest) {
          await rm(join(folder, endpoint, date), { recursive: true, force: true });
        }
      }
    }
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
