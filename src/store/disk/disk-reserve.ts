// Reserves disk space in a file. The platform deletes the file when the disk is full, so that jobs
// can still end.
import { randomFillSync } from 'node:crypto';
import { rmSync, statSync } from 'node:fs';
import { type FileHandle, open, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';

const MB = 1_048_576;
const OWNER_ONLY = 0o600;

/**
 * Free space that must remain after creating the reserve, as a share of it; with less, the disk
 * would be full again at once.
 */
const MARGIN = 0.5;

export interface DiskReserveOptions {
  /** Path of the file; its folder must exist. */
  path: string;
  bytes: number;
}

export class DiskReserve {
  readonly bytes: number;
  readonly #path: string;
  /** Grows with each release, which aborts a running `make`. */
  #releases = 0;

  constructor({ bytes, path }: DiskReserveOptions) {
    this.bytes = bytes;
    this.#path = path;
  }

  /** Free bytes on the disk that `make` needs. */
  get neededBytes(): number {
    return Math.ceil(this.bytes * (1 + MARGIN));
  }

  get isHeld(): boolean {
    return statSync(this.#path, { throwIfNoEntry: false })?.size === this.bytes;
  }

  /** Gives the space back to the file system. */
  release(): void {
    this.#releases++;
    rmSync(this.#path, { force: true });
  }

  /** Allocates the space. Returns false and holds nothing if the disk has too little. */
  async make(): Promise<boolean> {
    if (this.isHeld) return true;
    const release = ++this.#releases;
    rmSync(this.#path, { force: true });
    if ((await readFreeBytes(dirname(this.#path))) < this.neededBytes) return false;
    let file: FileHandle | undefined;
    try {
      file = await open(this.#path, 'w', OWNER_ONLY);
      await this.#fill(file, release);
    } catch (error) {
      if (this.#releases === release) this.release();
      if (isNoSpace(error)) return false;
      throw error;
    } finally {
      await file?.close();
    }
    return this.#releases === release;
  }

  /** Random bytes: file systems that compress data or skip zeros would reserve nothing. */
  async #fill(file: FileHandle, release: number): Promise<void> {
    const block = randomFillSync(Buffer.allocUnsafe(Math.min(MB, this.bytes)));
    for (let written = 0; written < this.bytes; ) {
      if (this.#releases !== release) return;
      const { bytesWritten } = await file.write(block, 0, Math.min(MB, this.bytes - written));
      written += bytesWritten;
    }
  }
}

/** Bytes that this process may still write in the folder. */
export async function readFreeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

function isNoSpace(error: unknown): boolean {
  if (!(error instanceof Error) || !('code' in error)) return false;
  return error.code === 'ENOSPC' || error.code === 'EDQUOT' || error.code === 'EFBIG';
}
