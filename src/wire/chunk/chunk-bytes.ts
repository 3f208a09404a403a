// The bytes of a chunk: splits the JSON of an output that is too large for one chunk, and joins the values that a handler
// yielded again.
//
// All pieces of one value have the same encoding, so that clients need only "concatenate, then
// parse". An array with an element that is too large for one piece is therefore sent as the JSON
// text of the whole array. With mixed encodings, clients could not distinguish [x] from x, or two
// large neighbours from one.
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  LETTER_U,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from '../json-bytes.ts';
import type { Metrics } from './chunk.ts';
import { ENCODING, PartSequence, type Piece, readStringPiece } from './chunk-pieces.ts';

// A chunk: {"output":<json>,"metrics":<json>}, without white space; the metrics of a piece begin with
// {"part":. Metrics are flat numbers and quotes inside JSON strings are escaped, so the last `,"metrics":{` always ends
// the output. This allows taking chunks apart without parsing.
export const HEAD = '{"output":';
export const METRICS_KEY = ',"metrics":';
export const BOUNDARY = Buffer.from(`${METRICS_KEY}{`);
export const PIECE_BOUNDARY = Buffer.from(`${METRICS_KEY}{"part":`);
const PIECE_FRAME = `${HEAD}""${METRICS_KEY}{"part":,"parts":,"encoding":0}}`;

/** A Buffer over the same bytes. */
export function viewBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** A piece must hold the longest sequence that is never split, `\uXXXX`, twice. */
const MIN_CAPACITY_BYTES = 12;

interface Range {
  readonly start: number;
  readonly end: number;
}

/** A JSON text that one chunk cannot hold, and the metrics of its last piece. */
export interface LargeOutput {
  json: Buffer;
  metricsText: string;
}

/** Bytes between two pauses. */
const SLICE_BYTES = 524_288;

/** Returns the pieces of `json`, each at most `maxBytes`; the last one carries the metrics. */
export function splitJson(output: LargeOutput, maxBytes: number): Buffer[] {
  const work = splitInSlices(output, maxBytes);
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}

/** As `splitJson`, with pauses in which the platform serves other requests. */
export function* splitInSlices(
  { json, metricsText }: LargeOutput,
  maxBytes: number,
): Generator<void, Buffer[]> {
  const capacityFor = (bytes: number) => computeCapacity(bytes, metricsText, maxBytes);
  if (json[0] === QUOTE) {
    const ranges = cutString(json, capacityFor(json.length));
    return yield* writePieces({ json, ranges, encoding: ENCODING.string, metricsText });
  }
  const runs =
    json[0] === OPEN_BRACKET ? yield* cutArray(json, capacityFor(json.length)) : undefined;
  if (runs)
    return yield* writePieces({ json, ranges: runs, encoding: ENCODING.array, metricsText });
  const text = yield* quote(json);
  const ranges = cutString(text, capacityFor(text.length));
  return yield* writePieces({ json: text, ranges, encoding: ENCODING.text, metricsText });
}

/**
 * Returns the bytes of output in each piece. The metrics count in every piece although only the
 * last has them: one size for all pieces is simpler and costs only a few bytes.
 */
function computeCapacity(bytes: number, metricsText: string, maxBytes: number): number {
  const metricsBytes = metricsText === '{}' ? 0 : Buffer.byteLength(metricsText) - 1;
  for (let digits = 1; ; digits += 1) {
    const capacity = maxBytes - PIECE_FRAME.length - metricsBytes - 2 * digits;
    if (capacity < MIN_CAPACITY_BYTES) {
      throw new RangeError(`a chunk of ${maxBytes} bytes cannot hold output and metrics`);
    }
    // Two neighbouring pieces together always exceed one capacity, so this number is an upper
    // bound.
    const mostParts = Math.ceil((2 * bytes) / capacity) + 2;
    if (`${mostParts}`.length <= digits) return capacity;
  }
}

interface SplitValue {
  readonly json: Buffer;
  readonly ranges: readonly Range[];
  readonly encoding: number;
  readonly metricsText: string;
}

function* writePieces(value: SplitValue): Generator<void, Buffer[]> {
  const pieces: Buffer[] = [];
  for (const [part] of value.ranges.entries()) {
    pieces.push(writePiece(value, part));
    yield;
  }
  return pieces;
}

function writePiece({ encoding, json, metricsText, ranges }: SplitValue, part: number): Buffer {
  const range = ranges[part];
  if (range === undefined) throw new RangeError(`part ${part} does not exist`);
  const open = encoding === ENCODING.array ? '[' : '"';
  const close = encoding === ENCODING.array ? ']' : '"';
  const isLast = part === ranges.length - 1;
  const own = isLast && metricsText !== '{}' ? `,${metricsText.slice(1)}` : '}';
  const reserved = `{"part":${part},"parts":${ranges.length},"encoding":${encoding}`;
  const tail = Buffer.from(`${close}${METRICS_KEY}${reserved}${own}}`);
  return Buffer.concat([
    Buffer.from(`${HEAD}${open}`),
    json.subarray(range.start, range.end),
    tail,
  ]);
}

function cutString(json: Buffer, capacity: number): Range[] {
  const ranges: Range[] = [];
  const stop = json.length - 1;
  let start = 1;
  while (stop - start > capacity) {
    const end = findCut(json, start, start + capacity);
    ranges.push({ start, end });
    start = end;
  }
  ranges.push({ start, end: stop });
  return ranges;
}

/**
 * The last position up to `limit` where a JSON string may be split: between characters and escapes.
 */
function findCut(json: Buffer, start: number, limit: number): number {
  let cut = limit;
  while (((json[cut] ?? 0) & 0xc0) === 0x80) cut -= 1;
  for (let slash = cut - 1; slash >= cut - 5; slash -= 1) {
    if (json[slash] !== BACKSLASH) continue;
    let runStart = slash;
    while (runStart > start && json[runStart - 1] === BACKSLASH) runStart -= 1;
    // In a run of backslashes each pair is an escaped backslash; a remaining one starts an escape.
    if ((slash - runStart) % 2 === 1) return cut;
    const escapeBytes = json[slash + 1] === LETTER_U ? 6 : 2;
    return slash + escapeBytes > cut ? slash : cut;
  }
  return cut;
}

/** Runs of whole elements, without the commas between runs; undefined if an element is too large. */
function* cutArray(json: Buffer, capacity: number): Generator<void, Range[] | undefined> {
  const ranges: Range[] = [];
  let start = 1;
  let fitting = 0;
  let pauseAt = SLICE_BYTES;
  for (let elementStart = 1; elementStart < json.length; ) {
    if (elementStart > pauseAt) {
      pauseAt = elementStart + SLICE_BYTES;
      yield;
    }
    // The end of an element that is too large is not needed.
    const end = findElementEnd(json, elementStart, elementStart + capacity + 1);
    if (end - start > capacity) {
      if (fitting === 0 || end - elementStart > capacity) return undefined;
      ranges.push({ start, end: fitting });
      start = elementStart;
    }
    fitting = end;
    elementStart = end + 1;
  }
  ranges.push({ start, end: fitting });
  return ranges;
}

/** The position of the comma or bracket that ends the array element at `start`, or `limit` if that is less. */
function findElementEnd(json: Buffer, start: number, limit: number): number {
  let depth = 0;
  for (let at = start; at < json.length && at < limit; at += 1) {
    const byte = json[at];
    if (byte === QUOTE) at = findStringEnd(json, at, limit);
    else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) depth += 1;
    else if (depth === 0 && (byte === COMMA || byte === CLOSE_BRACKET)) return at;
    else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) depth -= 1;
  }
  return Math.min(json.length, limit);
}

function findStringEnd(json: Buffer, openQuote: number, limit: number): number {
  let at = openQuote + 1;
  while (at < json.length && at < limit && json[at] !== QUOTE) at += json[at] === BACKSLASH ? 2 : 1;
  return at;
}

/** Returns the same bytes as JSON.stringify of the text. */
function* quote(json: Buffer): Generator<void, Buffer> {
  const parts: Buffer[] = [Buffer.from('"')];
  for (let start = 0; start < json.length; ) {
    let end = Math.min(json.length, start + SLICE_BYTES);
    // Do not cut a code point in two.
    while (((json[end] ?? 0) & 0xc0) === 0x80) end -= 1;
    const text = JSON.stringify(json.toString('utf8', start, end));
    parts.push(Buffer.from(text.slice(1, -1)));
    start = end;
    yield;
  }
  parts.push(Buffer.from('"'));
  return Buffer.concat(parts);
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
