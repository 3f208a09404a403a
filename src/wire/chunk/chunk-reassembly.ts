// Reassembles the values that a handler yielded, from parsed chunks or from their bytes.

import type { Json } from '../json.ts';
import { CLOSE_BRACKET, COMMA, OPEN_BRACKET, QUOTE } from '../json-bytes.ts';
import type { Chunk, Metrics } from './chunk.ts';
import {
  BOUNDARY,
  ENCODING,
  HEAD,
  METRICS_KEY,
  PIECE_BOUNDARY,
  viewBuffer,
} from './chunk-layout.ts';

/**
 * Returns the values that a handler yielded, exactly and in order, from the chunks of one attempt
 * as `GET /stream` returns them. An output over 1 MB arrives as several chunks whose metrics have
 * `part`, `parts` and `encoding`; they are joined to one value again.
 *
 * Throws an Error that names the part if one is missing, repeated or out of order. Pass whole
 * streams, or wait until `metrics.part + 1 === metrics.parts`.
 */
export function reassemble(chunks: Iterable<Chunk>): Json[] {
  const values: Json[] = [];
  const sequence = new PartSequence();
  let pieces: Json[] = [];
  for (const { output, metrics } of chunks) {
    const piece = sequence.accept(metrics);
    if (piece === undefined) {
      values.push(output);
      continue;
    }
    pieces.push(output);
    if (!piece.isLast) continue;
    values.push(joinPieces(pieces, piece.encoding));
    pieces = [];
  }
  sequence.finish();
  return values;
}

/**
 * Returns the JSON array of all yielded values as text, from the bytes that encodeChunk wrote for
 * one attempt; undefined if it is longer than `maxBytes`. Throws as `reassemble` does.
 */
export function joinOutputs(chunks: Iterable<Uint8Array>, maxBytes: number): Buffer | undefined {
  const joined = new BoundedBytes(maxBytes);
  const sequence = new PartSequence();
  joined.appendByte(OPEN_BRACKET);
  let isFirstValue = true;
  for (const bytes of chunks) {
    const { json, metrics } = openChunk(viewBuffer(bytes));
    const piece = sequence.accept(metrics);
    if (piece?.isFirst !== false && !isFirstValue) joined.appendByte(COMMA);
    isFirstValue = false;
    if (piece === undefined) joined.append(json);
    else appendPiece(joined, json, piece);
    if (joined.overflowed) return undefined;
  }
  sequence.finish();
  joined.appendByte(CLOSE_BRACKET);
  return joined.overflowed ? undefined : joined.take();
}

/** A part of a split output is missing, repeated, out of order, or not described. */
export class ChunkOrderError extends Error {
  override readonly name = 'ChunkOrderError';
}

interface Piece {
  readonly encoding: number;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

/** Tracks the parts of each value; throws ChunkOrderError if one is missing, repeated or out of order. */
class PartSequence {
  #next = 0;
  #parts = 0;
  #encoding = 0;

  /** Classifies the chunk with these metrics; undefined for a whole value. */
  accept({ part, parts, encoding }: Metrics): Piece | undefined {
    if (part === undefined) {
      if (this.#next > 0) throw this.#fail('a whole value');
      return undefined;
    }
    if (parts === undefined || encoding === undefined) {
      throw new ChunkOrderError('a chunk has the metric "part" without "parts" and "encoding"');
    }
    if (encoding !== ENCODING.string && encoding !== ENCODING.array && encoding !== ENCODING.text) {
      throw new ChunkOrderError(`a chunk has the unknown encoding ${encoding}`);
    }
    const isFirst = this.#next === 0;
    if (isFirst) this.#parts = parts;
    if (isFirst) this.#encoding = encoding;
    if (part !== this.#next || parts !== this.#parts || encoding !== this.#encoding) {
      throw this.#fail(`part ${part} of ${parts}, encoding ${encoding}`);
    }
    const isLast = part + 1 === parts;
    this.#next = isLast ? 0 : part + 1;
    return { encoding, isFirst, isLast };
  }

  finish(): void {
    if (this.#next > 0) throw this.#fail('the end of the chunks');
  }

  #fail(found: string): ChunkOrderError {
    const expected = `part ${this.#next} of ${this.#parts}, encoding ${this.#encoding}`;
    return new ChunkOrderError(
      `chunks are incomplete or out of order: expected ${expected}; found ${found}`,
    );
  }
}

function joinPieces(pieces: readonly Json[], encoding: number): Json {
  if (encoding === ENCODING.array) {
    const elements: Json[] = [];
    for (const piece of pieces) {
      if (!Array.isArray(piece)) throw new Error('a piece with encoding 1 is not an array');
      for (const element of piece) elements.push(element);
    }
    return elements;
  }
  const text = pieces.map(readStringPiece).join('');
  return encoding === ENCODING.string ? text : JSON.parse(text);
}

function readStringPiece(piece: Json): string {
  if (typeof piece !== 'string') throw new Error('a piece with encoding 0 or 2 is not a string');
  return piece;
}

const NO_METRICS: Metrics = {};

/** The output's bytes, and the metrics of a piece. The metrics of a whole value are not parsed. */
function openChunk(chunk: Buffer): { json: Buffer; metrics: Metrics } {
  const boundary = chunk.lastIndexOf(BOUNDARY);
  if (boundary <= HEAD.length) throw new Error('bytes that are not an encoded chunk');
  const json = chunk.subarray(HEAD.length, boundary);
  const isPiece =
    chunk[boundary + BOUNDARY.length] === QUOTE &&
    chunk.subarray(boundary, boundary + PIECE_BOUNDARY.length).equals(PIECE_BOUNDARY);
  if (!isPiece) return { json, metrics: NO_METRICS };
  const metrics = JSON.parse(
    chunk.toString('utf8', boundary + METRICS_KEY.length, chunk.length - 1),
  );
  return { json, metrics };
}

function appendPiece(joined: BoundedBytes, json: Buffer, piece: Piece): void {
  const { encoding, isFirst, isLast } = piece;
  if (encoding === ENCODING.text) {
    joined.append(Buffer.from(readStringPiece(JSON.parse(json.toString()))));
    return;
  }
  if (encoding === ENCODING.array && !isFirst) joined.appendByte(COMMA);
  joined.append(json.subarray(isFirst ? 0 : 1, isLast ? json.length : json.length - 1));
}

/** A buffer that grows up to a limit; past the limit it only records that there was more. */
class BoundedBytes {
  overflowed = false;
  readonly #maxBytes: number;
  #bytes = Buffer.allocUnsafe(256);
  #length = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  append(more: Uint8Array): void {
    if (!this.#reserve(more.length)) return;
    this.#bytes.set(more, this.#length);
    this.#length += more.length;
  }

  appendByte(byte: number): void {
    if (!this.#reserve(1)) return;
    this.#bytes[this.#length] = byte;
    this.#length += 1;
  }

  take(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  #reserve(bytes: number): boolean {
    const length = this.#length + bytes;
    this.overflowed ||= length > this.#maxBytes;
    if (!this.overflowed && length > this.#bytes.length) {
      const grown = Buffer.allocUnsafe(Math.min(this.#maxBytes, 2 * length));
      grown.set(this.take());
      this.#bytes = grown;
    }
    return !this.overflowed;
  }
}
