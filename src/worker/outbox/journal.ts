// An append-only file of records that survives the process. A reader finds each record whole or not
// at all. The outbox defines the records and removes them. For a file of any size, reading needs a window of 256
// KB and one header of at most 4 MB; the bodies stay in the file. Files that another process wrote are read here too.
//
// Layout: the format name (8 bytes), then records. Numbers are unsigned and big-endian.
//
//  length (4) | CRC-32 (4) | header length (4) | header (JSON) | body
//
// Length and CRC-32 cover everything behind the CRC-32.
import { closeSync, constants, fsyncSync, openSync } from 'node:fs';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';

/** Names the format and its version; all versions have the same length. */
const MAGIC = Buffer.from('mr-jrnl1');
/** Size of the three numbers before a record's header. */
export const PREFIX_BYTES = 12;
/** Offset in a record of the bytes that length and checksum cover. */
const SUMMED_FROM = 8;
/** Longest header of one record that is parsed. */
const MAX_RECORD_HEADER_BYTES = 4 * 1_048_576;
const WINDOW_BYTES = 262_144;

const NO_BODY = new Uint8Array(0);
/** Outputs may be confidential. */
const OWNER_ONLY = 0o600;

export interface JournalRange {
  at: number;
  bytes: number;
}

export interface ScannedRecord<Header> {
  /** Undefined if it is longer than any header that this program writes. */
  header: Header | undefined;
  headerBytes: number;
  body: JournalRange;
  /** Size of the whole record. */
  bytes: number;
}

/** The file is not a journal of this version; it stays unchanged. */
class JournalFormatError extends Error {
  override readonly name = 'JournalFormatError';
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
  async read({ at, bytes }: JournalRange): Promise<Buffer> {
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

/** Size of encoded records. */
export function countBytes(pieces: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const piece of pieces) bytes += piece.length;
  return bytes;
}

/**
 * Calls `visit` with each record, up to the first one that is incomplete or has a wrong checksum.
 * Headers are not validated: format name and checksum show that this program wrote them.
 * @returns the offset behind the last valid record; 0 if even the format name is cut short
 * @throws JournalFormatError, and any error of the file system
 */
export async function scanJournal<Header>(
  file: FileHandle,
  size: number,
  visit: (record: ScannedRecord<Header>) => void,
): Promise<number> {
  const reader = new WindowReader(file, size);
  const magic = await reader.read(0, MAGIC.length);
  if (!magic.equals(MAGIC.subarray(0, magic.length))) {
    throw new JournalFormatError('this version cannot read the journal');
  }
  if (magic.length < MAGIC.length) return 0;
  let at = MAGIC.length;
  for (;;) {
    const record = await readRecord<Header>(reader, at, size);
    if (!record) return at;
    visit(record);
    at += record.bytes;
  }
}

async function readRecord<Header>(
  reader: WindowReader,
  at: number,
  size: number,
): Promise<ScannedRecord<Header> | undefined> {
  if (at + PREFIX_BYTES > size) return undefined;
  const prefix = await reader.read(at, PREFIX_BYTES);
  if (prefix.length < PREFIX_BYTES) return undefined;
  const end = at + SUMMED_FROM + prefix.readUInt32BE(0);
  const wantedSum = prefix.readUInt32BE(4);
  const headerBytes = prefix.readUInt32BE(SUMMED_FROM);
  const bodyAt = at + PREFIX_BYTES + headerBytes;
  if (end > size || bodyAt > end) return undefined;
  const isParsed = headerBytes <= MAX_RECORD_HEADER_BYTES;
  const text = isParsed && (await reader.read(at + PREFIX_BYTES, headerBytes)).toString('utf8');
  if ((await reader.sum(at + SUMMED_FROM, end)) !== wantedSum) return undefined;
  const header: Header | undefined = text === false ? undefined : JSON.parse(text);
  const body = { at: bodyAt, bytes: end - bodyAt };
  return { header, headerBytes, body, bytes: end - at };
}

/** Reads ahead, so that many small records take few reads. */
class WindowReader {
  readonly #file: FileHandle;
  readonly #size: number;
  readonly #buffer = Buffer.allocUnsafeSlow(WINDOW_BYTES);
  #start = 0;
  #held = this.#buffer.subarray(0, 0);

  /** Nothing behind `size` is read. */
  constructor(file: FileHandle, size: number) {
    this.#file = file;
    this.#size = size;
  }

  /** Valid until the next call; shorter at the end of the file. */
  async read(at: number, length: number): Promise<Buffer> {
    const isHeld = at >= this.#start && at + length <= this.#start + this.#held.length;
    if (!isHeld) {
      const buffer = length > WINDOW_BYTES ? Buffer.allocUnsafeSlow(length) : this.#buffer;
      const wanted = buffer.subarray(0, Math.max(0, Math.min(buffer.length, this.#size - at)));
      this.#held = wanted.subarray(0, await fill(this.#file, wanted, at));
      this.#start = at;
    }
    const from = at - this.#start;
    return this.#held.subarray(from, from + length);
  }

  /** Checksum of the bytes from `from` to `end`. */
  async sum(from: number, end: number): Promise<number> {
    let sum = 0;
    for (let at = from; at < end; ) {
      const bytes = await this.read(at, Math.min(WINDOW_BYTES, end - at));
      if (bytes.length === 0) break;
      sum = crc32(bytes, sum);
      at += bytes.length;
    }
    return sum;
  }
}

/**
 * Follows no links and opens only regular files: a pipe would block a thread of this process
 * forever, and a device has no end. @throws Error, also for a file of more than `maxBytes`
 */
export function readForeignFile(path: string, maxBytes: number): Promise<Buffer> {
  return useForeignFile(path, maxBytes, async (file, size) => {
    const bytes = Buffer.allocUnsafeSlow(size);
    return bytes.subarray(0, await fill(file, bytes, 0));
  });
}

/** Opens the file under the same rules and closes it after `use`. */
export async function useForeignFile<T>(
  path: string,
  maxBytes: number,
  use: (file: FileHandle, size: number) => Promise<T>,
): Promise<T> {
  const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
  const file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw new Error(`${path} is not a file`);
    if (stats.size > maxBytes) throw new Error(`${path} has more than ${maxBytes} bytes`);
    return await use(file, stats.size);
  } finally {
    await file.close();
  }
}

/**
 * Reads into `bytes` from `position` on.
 * @returns the number of bytes read; less than `bytes.length` only at the end of the file
 */
export async function fill(file: FileHandle, bytes: Buffer, position: number): Promise<number> {
  let at = 0;
  while (at < bytes.length) {
    const { bytesRead } = await file.read(bytes, at, bytes.length - at, position + at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  return at;
}
