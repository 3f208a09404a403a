// Decides which writes are allowed while the disk is full: only those that end or remove something,
// within a reserve.
import { randomFillSync } from 'node:crypto';
import { rmSync, statSync } from 'node:fs';
import { type FileHandle, open, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { WriteOptions } from '../store.ts';

/**
 * Share of the reserve that payloads may use. On a full disk a payload goes into the database, which writes it twice: to
 * the write-ahead log and to its file. The rest is for cancellations and removals.
 */
const PAYLOAD_SHARE = 0.25;

export class SpaceGate {
  readonly #reserve: DiskReserve;
  #isFull = false;
  #payloadLeft = 0;

  constructor(reserve: DiskReserve) {
    this.#reserve = reserve;
  }

  /** The disk is full: new data is refused. */
  get isFull(): boolean {
    return this.#isFull;
  }

  admits({ onFullDisk = 'refuse', payloadBytes = 0 }: WriteOptions): boolean {
    if (!this.#isFull) return true;
    return onFullDisk === 'proceed' && payloadBytes <= this.#payloadLeft;
  }

  /** Counts committed payload bytes. */
  spend(bytes: number): void {
    if (this.#isFull) this.#payloadLeft = Math.max(0, this.#payloadLeft - bytes);
  }

  /**
   * Called when the disk is full: releases the reserve. If that fails, the gate stays open. @throws
   * the system's error
   */
  close(): void {
    this.#reserve.release();
    if (!this.#isFull) this.#payloadLeft = Math.floor(this.#reserve.bytes * PAYLOAD_SHARE);
    this.#isFull = true;
  }

  /** Called when the disk has space again and the reserve is held. */
  open(): void {
    this.#isFull = false;
  }
}

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
