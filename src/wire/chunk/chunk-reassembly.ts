// Reassembles the values that a handler yielded from the bytes of chunks.
import { CLOSE_BRACKET, COMMA, OPEN_BRACKET, QUOTE } from '../json-bytes.ts';
import type { Metrics } from './chunk.ts';
import { ENCODING, PartSequence, type Piece, readStringPiece } from './chunk-pieces.ts';
import { BOUNDARY, HEAD, METRICS_KEY, PIECE_BOUNDARY, viewBuffer } from './chunk-split.ts';

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
