// An append-only file of records that survives the process. A reader finds each record whole or not
// at all. The outbox defines the records and removes them.
import { closeSync, constants, fsyncSync, openSync } from 'node:fs';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';
import { fill } from './foreign-file.ts';

/** Names the format and its version; all versions have the same length. */
const MAGIC = Buffer.from('mr-jrnl1');
/** Length of the rest, checksum, length of the header: 32 bits each, big-endian. */
const PREFIX_BYTES = 12;
const NO_BODY = new Uint8Array(0);
/** Outputs may be confidential. */
const OWNER_ONLY = 0o600;

export interface JournalRecord<Header> {
  header: Header;
  body: Uint8Array;
}

export interface JournalContent<Header> {
  records: JournalRecord<Header>[];
  /** The records before this offset are whole. */
  goodBytes: number;
  /** Bytes after that offset: a record whose write was cut short. */
  tornBytes: number;
}

/** The file is not such a journal; it stays unchanged. */
export class JournalFormatError extends Error {
  override readonly name = 'JournalFormatError';
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

/**
 * Returns the whole records of a journal; bodies are views into it. Headers need no validation:
 * checksum and format name guarantee that this program wrote them.
 * @throws JournalFormatError
 */
function decodeJournal<Header>(bytes: Buffer): JournalContent<Header> {
  const records: JournalRecord<Header>[] = [];
  const magic = bytes.subarray(0, MAGIC.length);
  if (!magic.equals(MAGIC.subarray(0, magic.length))) {
    throw new JournalFormatError('this version cannot read the journal');
  }
  if (magic.length < MAGIC.length) return { records, goodBytes: 0, tornBytes: bytes.length };
  let at = MAGIC.length;
  for (;;) {
    const end = findRecordEnd(bytes, at);
    if (end === undefined) break;
    const headerEnd = at + PREFIX_BYTES + bytes.readUInt32BE(at + 8);
    const header: Header = JSON.parse(bytes.toString('utf8', at + PREFIX_BYTES, headerEnd));
    records.push({ header, body: bytes.subarray(headerEnd, end) });
    at = end;
  }
  return { records, goodBytes: at, tornBytes: bytes.length - at };
}

function findRecordEnd(bytes: Buffer, at: number): number | undefined {
  if (at + PREFIX_BYTES > bytes.length) return undefined;
  const end = at + 8 + bytes.readUInt32BE(at);
  const isWhole = end <= bytes.length && at + PREFIX_BYTES + bytes.readUInt32BE(at + 8) <= end;
  if (!isWhole) return undefined;
  return crc32(bytes.subarray(at + 8, end)) === bytes.readUInt32BE(at + 4) ? end : undefined;
}

/** Longest header of a journal that another process wrote; bounds the memory for one record. */
const MAX_HEADER_BYTES = 4 * 1_048_576;
const SCAN_BYTES = 65_536;

/**
 * Reads the headers of whole records and checks the bodies without keeping them. Stops at the first
 * record that is not whole, so a file with holes costs no memory. @throws JournalFormatError
 */
export async function scanHeaders<Header>(file: FileHandle, size: number): Promise<Header[]> {
  const headers: Header[] = [];
  const magic = await readAt(file, 0, MAGIC.length);
  if (!magic.equals(MAGIC)) {
    if (magic.equals(MAGIC.subarray(0, magic.length))) return headers;
    throw new JournalFormatError('this version cannot read the journal');
  }
  for (let at = MAGIC.length; at + PREFIX_BYTES <= size; ) {
    const prefix = await readAt(file, at, PREFIX_BYTES);
    if (prefix.length < PREFIX_BYTES) break;
    const end = at + 8 + prefix.readUInt32BE(0);
    const headerBytes = prefix.readUInt32BE(8);
    const headerEnd = at + PREFIX_BYTES + headerBytes;
    if (end > size || headerEnd > end || headerBytes > MAX_HEADER_BYTES) break;
    const text = await readAt(file, at + PREFIX_BYTES, headerBytes);
    let sum = crc32(text, crc32(prefix.subarray(8)));
    for (let from = headerEnd; from < end; from += SCAN_BYTES) {
      sum = crc32(await readAt(file, from, Math.min(SCAN_BYTES, end - from)), sum);
    }
    if (sum !== prefix.readUInt32BE(4)) break;
    headers.push(JSON.parse(text.toString('utf8')));
    at = end;
  }
  return headers;
}

async function readAt(file: FileHandle, at: number, length: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafeSlow(length);
  return bytes.subarray(0, await fill(file, bytes, at));
}

export class Journal {
  readonly #path: string;
  #file: FileHandle;
  #bytes: number;
  /** A write failed: there may be a partial record behind `#bytes`. */
  #isDirty = false;

  private constructor(path: string, file: FileHandle, bytes: number) {
    this.#path = path;
    this.#file = file;
    this.#bytes = bytes;
  }

  /**
   * Creates the file if it is missing, and cuts off a partial record.
   * @throws JournalFormatError, and any error of the file system
   */
  static async open<Header>(
    path: string,
  ): Promise<{ journal: Journal; content: JournalContent<Header> }> {
    const file = await open(path, constants.O_RDWR | constants.O_CREAT, OWNER_ONLY);
    try {
      const content = decodeJournal<Header>(await readWhole(file));
      const journal = new Journal(path, file, content.goodBytes);
      if (content.tornBytes > 0) await file.truncate(content.goodBytes);
      if (content.goodBytes === 0) await journal.append([], { isDurable: true });
      syncFolder(dirname(path));
      return { journal, content };
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

  /**
   * Appends records in one write. If it throws, none of them is stored and the call may be
   * repeated.
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

async function readWhole(file: FileHandle): Promise<Buffer> {
  const { size } = await file.stat();
  return readAt(file, 0, size);
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

function countBytes(pieces: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const piece of pieces) bytes += piece.length;
  return bytes;
}
