// An append-only file of records that survives the process. A reader finds each record whole or not
// at all. The outbox defines the records and removes them; journal-scan.ts has the file's layout.
import { closeSync, constants, fsyncSync, openSync } from 'node:fs';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';
import { fill } from './foreign-file.ts';
import {
  MAGIC,
  type Place,
  PREFIX_BYTES,
  type ScannedRecord,
  scanJournal,
} from './journal-scan.ts';

const NO_BODY = new Uint8Array(0);
/** Outputs may be confidential. */
const OWNER_ONLY = 0o600;

/** Bodies are not copied. */
export function encodeRecord(header: unknown, body: Uint8Array = NO_BODY): Uint8Array[] {
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
  prefix.writeUInt32BE(4 + text.length + body.length, 0);
  prefix.writeUInt32BE(text.length, 8);
  const sum = crc32(body, crc32(text, crc32(prefix.subarray(8))));
  prefix.writeUInt32BE(sum, 4);
  return body.length > 0 ? [prefix, text, body] : [prefix, text];
}

export class Journal {
  readonly #path: string;
  #file: FileHandle;
  #bytes: number;
  /** A write has begun or failed: there may be records behind `#bytes`, whole or partial. */
  #isDirty = false;

  private constructor(path: string, file: FileHandle, bytes: number) {
    this.#path = path;
    this.#file = file;
    this.#bytes = bytes;
  }

  /**
   * Creates the file if it is missing, calls `visit` with its records, and truncates it at the
   * first record that is incomplete or has a wrong checksum. Records after that one are lost,
   * because only its length would tell where they begin. A crash tears only the end of the file: an
   * append that never returned. If the disk has damaged an earlier record, the lost outcomes are
   * treated as if their process had died before it wrote them.
   * @throws JournalFormatError, and any error of the file system
   */
  static async open<Header>(
    path: string,
    visit: (record: ScannedRecord<Header>) => void,
  ): Promise<{ journal: Journal; tornBytes: number }> {
    const file = await open(path, constants.O_RDWR | constants.O_CREAT, OWNER_ONLY);
    try {
      const { size } = await file.stat();
      const goodBytes = await scanJournal(file, size, visit);
      const journal = new Journal(path, file, goodBytes);
      const tornBytes = size - goodBytes;
      if (tornBytes > 0) await file.truncate(goodBytes);
      if (goodBytes === 0) await journal.append([], { isDurable: true });
      syncFolder(dirname(path));
      return { journal, tornBytes };
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Size of the file. */
  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#bytes <= MAGIC.length;
  }

  /** Reads the body of a record that `open` found. @throws any error of the file system */
  async read({ at, bytes }: Place): Promise<Buffer> {
    const body = Buffer.allocUnsafeSlow(bytes);
    const readBytes = await fill(this.#file, body, at);
    if (readBytes < bytes) throw new Error(`only ${readBytes} of ${bytes} bytes could be read`);
    return body;
  }

  /**
   * Appends records in one write. If it throws, treat none of them as stored; the next call cuts
   * off what this one left. If the process ends before that, a later process may find a part of the
   * records, or all: a short write leaves its first ones, a failed sync any of them.
   * @throws any error of the file system
   */
  async append(pieces: Uint8Array[], { isDurable }: { isDurable: boolean }): Promise<void> {
    if (this.#isDirty) await this.#file.truncate(this.#bytes);
    this.#isDirty = true;
    const all = this.#bytes === 0 ? [MAGIC, ...pieces] : pieces;
    const wanted = countBytes(all);
    const { bytesWritten } = await this.#file.writev(all, this.#bytes);
    if (bytesWritten < wanted) {
      throw new Error(`only ${bytesWritten} of ${wanted} bytes could be written`);
    }
    if (isDurable) await this.#file.datasync();
    this.#bytes += wanted;
    this.#isDirty = false;
  }

  /** Removes all records. */
  async clear(): Promise<void> {
    await this.#file.truncate(MAGIC.length);
    this.#bytes = MAGIC.length;
    this.#isDirty = false;
  }

  /** Replaces all records; if it throws, the old records remain. */
  async rewrite(pieces: Uint8Array[]): Promise<void> {
    const path = `${this.#path}.new`;
    const file = await open(path, 'w+', OWNER_ONLY);
    const successor = new Journal(this.#path, file, 0);
    try {
      await successor.append(pieces, { isDurable: true });
      await rename(path, this.#path);
    } catch (error) {
      await file.close();
      await rm(path, { force: true });
      throw error;
    }
    const before = this.#file;
    this.#file = file;
    this.#bytes = successor.bytes;
    this.#isDirty = false;
    syncFolder(dirname(this.#path));
    await before.close();
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}

/** A new file's name is durable only once its folder is synced. */
function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Size of encoded records. */
export function countBytes(pieces: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const piece of pieces) bytes += piece.length;
  return bytes;
}
