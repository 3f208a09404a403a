// Cuts bytes into lines without keeping more than one line.
import { BATCH_LIMITS } from '../../wire/job/batch.ts';

const LINE_FEED = 10;
const NO_BYTES = Buffer.alloc(0);

/** A line without its end. `end`: bytes of the file up to and with its end. */
export interface FileLine {
  bytes: Buffer;
  /** Counted from 1. */
  number: number;
  end: number;
  /** It is longer than a line may be; `bytes` has only its start. */
  isTooLong: boolean;
}

export class LineSplitter {
  #pieces: Buffer[] = [];
  #pieceBytes = 0;
  /** Of the file, behind the last whole line. */
  #at: number;
  #lineBytes = 0;
  #number: number;

  /** `at`: bytes of the file before the first line, which has the number behind `number`. */
  constructor({ at, number }: { at: number; number: number } = { at: 0, number: 0 }) {
    this.#at = at;
    this.#number = number;
  }

  /** Yields the lines that end in these bytes. Views into them are valid until the next call. */
  *split(bytes: Buffer): Generator<FileLine> {
    let start = 0;
    for (;;) {
      const end = bytes.indexOf(LINE_FEED, start);
      if (end < 0) break;
      const piece = bytes.subarray(start, end);
      start = end + 1;
      yield this.#end(piece, 1);
    }
    if (start < bytes.length) this.#keep(bytes.subarray(start));
  }

  /** The last line needs no line feed. */
  end(): FileLine | undefined {
    return this.#lineBytes > 0 ? this.#end(NO_BYTES, 0) : undefined;
  }

  #end(piece: Buffer, feed: number): FileLine {
    this.#lineBytes += piece.length;
    const isTooLong = this.#lineBytes > BATCH_LIMITS.lineBytes;
    const bytes = this.#pieces.length > 0 ? Buffer.concat([...this.#pieces, piece]) : piece;
    this.#at += this.#lineBytes + feed;
    this.#number += 1;
    const line = { bytes: trimEnd(bytes), number: this.#number, end: this.#at, isTooLong };
    this.#pieces = [];
    this.#pieceBytes = 0;
    this.#lineBytes = 0;
    return line;
  }

  #keep(piece: Buffer): void {
    this.#lineBytes += piece.length;
    if (this.#pieceBytes > BATCH_LIMITS.lineBytes) return;
    // A copy: the bytes may be part of a larger block.
    this.#pieces.push(Buffer.from(piece));
    this.#pieceBytes += piece.length;
  }
}

const CARRIAGE_RETURN = 13;

function trimEnd(bytes: Buffer): Buffer {
  return bytes.at(-1) === CARRIAGE_RETURN ? bytes.subarray(0, -1) : bytes;
}

/** Whether the line has only white space, as the last one of a file may. */
export function isBlank({ bytes }: FileLine): boolean {
  return bytes.length < 64 && bytes.toString('latin1').trim() === '';
}
