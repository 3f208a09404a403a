// Reads the records of a journal in parts. For a file of any size, the scan needs a window of 256
// KB and one header of at most 4 MB. The bodies stay in the file.
//
// Layout: the format name (8 bytes), then records. Numbers are unsigned and big-endian.
//
//  length (4) | CRC-32 (4) | header length (4) | header (JSON) | body
//
// Length and CRC-32 cover everything behind the CRC-32.
import type { FileHandle } from 'node:fs/promises';
import { crc32 } from 'node:zlib';
import { fill } from './foreign-file.ts';

/** Names the format and its version; all versions have the same length. */
export const MAGIC = Buffer.from('mr-jrnl1');
/** Size of the three numbers before a record's header. */
export const PREFIX_BYTES = 12;
/** Offset in a record of the bytes that length and checksum cover. */
const SUMMED_FROM = 8;
/** Longest header of one record that is parsed. */
const MAX_RECORD_HEADER_BYTES = 4 * 1_048_576;
const WINDOW_BYTES = 262_144;

export interface Place {
  at: number;
  bytes: number;
}

export interface ScannedRecord<Header> {
  /** Undefined if it is longer than any header that this program writes. */
  header: Header | undefined;
  headerBytes: number;
  body: Place;
  /** Size of the whole record. */
  bytes: number;
}

/** The file is not a journal of this version; it stays unchanged. */
export class JournalFormatError extends Error {
  override readonly name = 'JournalFormatError';
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
