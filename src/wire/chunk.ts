// Owns the chunk: its limits, its exact byte layout, how a large output is split and put together.
// Leaves what is JSON to json.ts, numbering, storing and sending to others.
//
// Layout: {"output":<json>,"metrics":<json>}, without white space; a piece's metrics begin with
// {"part":. Metrics are flat numbers and a quote inside a JSON string is escaped, so that the last
// `,"metrics":{` always ends the output: chunks are taken apart without parsing.
//
// All pieces of one value have the same encoding. So an array with an element too large for a
// piece of its own goes as the JSON text of the whole array: pieces of mixed encodings could not
// tell [x] from x, nor two large neighbours from one, and every client would need more than
// "concatenate, then parse".

import { isPlainObject, type Json, stringifyJson } from './json.ts';

/** Largest chunk: bytes of UTF-8, the whole object with its metrics. */
export const MAX_CHUNK_BYTES = 1_000_000;

/** Largest metrics of one chunk: bytes of UTF-8 JSON. */
export const MAX_METRICS_BYTES = 65_536;

/** Names of metrics that describe the pieces of a split output; handlers cannot use them. */
export const RESERVED_METRICS = ['part', 'parts', 'encoding'] as const;

export type Metrics = Record<string, number>;

export interface Chunk {
  output: Json;
  metrics: Metrics;
}

export interface SplitOptions {
  /** Most bytes of one chunk, metrics included. Default MAX_CHUNK_BYTES; 80 and the metrics suffice. */
  maxBytes?: number;
}

/** The metric `encoding`: what the outputs of a value's pieces are. */
const ENCODING = { string: 0, array: 1, text: 2 } as const;

const HEAD = '{"output":';
const METRICS_KEY = ',"metrics":';
const BOUNDARY = Buffer.from(`${METRICS_KEY}{`);
const PIECE_BOUNDARY = Buffer.from(`${METRICS_KEY}{"part":`);
const PIECE_FRAME = `${HEAD}""${METRICS_KEY}{"part":,"parts":,"encoding":0}}`;

/** A piece must have room for the longest thing that is never cut, `\uXXXX`, twice. */
const MIN_ROOM_BYTES = 12;

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const LETTER_U = 0x75;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Throws a TypeError unless the metrics are a plain object of finite numbers, without the
 * reserved names, of at most 65,536 bytes as JSON.
 */
export function checkMetrics(metrics: Metrics): void {
  stringifyMetrics(metrics);
}

/**
 * The JSON bytes of one yielded value: one chunk, or several pieces if it is larger than
 * `maxBytes`. The handler's metrics are on the last piece.
 *
 * Throws NotJsonError (paths begin with `output`), TypeError for metrics as checkMetrics does, and
 * RangeError if `maxBytes` has no room for the metrics and a few bytes of output.
 */
export function encodeChunk(
  output: unknown,
  metrics: Metrics,
  { maxBytes = MAX_CHUNK_BYTES }: SplitOptions = {},
): Buffer[] {
  const metricsText = stringifyMetrics(metrics);
  const tail = `${METRICS_KEY}${metricsText}}`;
  const whole = Buffer.from(`${HEAD}${stringifyJson(output, 'output')}${tail}`);
  if (whole.length <= maxBytes) return [whole];
  const json = whole.subarray(HEAD.length, whole.length - Buffer.byteLength(tail));
  return splitJson(json, metricsText, maxBytes);
}

/**
 * Like encodeChunk, for an output that is JSON bytes already, as stringifyJson writes them; they
 * are neither parsed nor checked.
 */
export function encodeJsonChunk(
  outputJson: Uint8Array,
  metrics: Metrics,
  { maxBytes = MAX_CHUNK_BYTES }: SplitOptions = {},
): Buffer[] {
  const metricsText = stringifyMetrics(metrics);
  const json = viewBuffer(outputJson);
  const tail = Buffer.from(`${METRICS_KEY}${metricsText}}`);
  if (HEAD.length + json.length + tail.length <= maxBytes) {
    return [Buffer.concat([Buffer.from(HEAD), json, tail])];
  }
  return splitJson(json, metricsText, maxBytes);
}

/** The chunks as a client reads them that encodeChunk makes of one chunk. Throws as it does. */
export function splitChunk({ output, metrics }: Chunk, options: SplitOptions = {}): Chunk[] {
  return encodeChunk(output, metrics, options).map((bytes) => JSON.parse(bytes.toString()));
}

/**
 * The values that a handler yielded, exactly and in order, from the chunks of one attempt as
 * `GET /stream` answers them. Outputs over 1 MB travel as several chunks whose metrics have
 * `part`, `parts` and `encoding`; here they become one value again.
 *
 * Throws an Error that names the part if one is missing, repeated or out of order: give it whole
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
 * The JSON text of the array of all yielded values, from the bytes of the chunks of one attempt
 * as encodeChunk wrote them; undefined if it is longer than `maxBytes`. Throws as reassemble does.
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

function stringifyMetrics(metrics: Metrics): string {
  if (!isPlainObject(metrics)) throw new TypeError('metrics must be a plain object of numbers');
  const names = Object.keys(metrics);
  if (names.length === 0) return '{}';
  for (const name of names) {
    if (!Number.isFinite(metrics[name])) {
      const shown = typeof metrics[name] === 'number' ? metrics[name] : typeof metrics[name];
      throw new TypeError(`metrics.${name.slice(0, 100)} must be a finite number, not ${shown}`);
    }
    if (RESERVED_METRICS.some((reserved) => reserved === name)) {
      throw new TypeError(`metrics.${name} is reserved for the pieces of a split output`);
    }
  }
  const text = JSON.stringify(metrics);
  const bytes = text.length * 3 > MAX_METRICS_BYTES ? Buffer.byteLength(text) : 0;
  if (bytes > MAX_METRICS_BYTES) {
    throw new TypeError(`metrics are ${bytes} bytes of JSON, at most ${MAX_METRICS_BYTES} go`);
  }
  return text;
}

interface Range {
  readonly start: number;
  readonly end: number;
}

function splitJson(json: Buffer, metricsText: string, maxBytes: number): Buffer[] {
  const roomFor = (bytes: number) => computeRoom(bytes, metricsText, maxBytes);
  if (json[0] === QUOTE) {
    return writePieces(json, cutString(json, roomFor(json.length)), ENCODING.string, metricsText);
  }
  const elements = json[0] === OPEN_BRACKET ? cutArray(json, roomFor(json.length)) : undefined;
  if (elements !== undefined) return writePieces(json, elements, ENCODING.array, metricsText);
  const text = Buffer.from(JSON.stringify(json.toString()));
  return writePieces(text, cutString(text, roomFor(text.length)), ENCODING.text, metricsText);
}

/**
 * How many bytes of output each piece takes. The metrics are counted in every piece although only
 * the last one has them: one size for all is worth more than the few bytes.
 */
function computeRoom(bytes: number, metricsText: string, maxBytes: number): number {
  const metricsBytes = metricsText === '{}' ? 0 : Buffer.byteLength(metricsText) - 1;
  for (let digits = 1; ; digits += 1) {
    const room = maxBytes - PIECE_FRAME.length - metricsBytes - 2 * digits;
    if (room < MIN_ROOM_BYTES) {
      throw new RangeError(`a chunk of ${maxBytes} bytes has no room for output and metrics`);
    }
    // Two neighbours are always more than one room together, so this many parts are never passed.
    const mostParts = Math.ceil((2 * bytes) / room) + 2;
    if (String(mostParts).length <= digits) return room;
  }
}

function writePieces(
  json: Buffer,
  ranges: readonly Range[],
  encoding: number,
  metricsText: string,
): Buffer[] {
  const [open, close] = encoding === ENCODING.array ? '[]' : '""';
  const head = Buffer.from(`${HEAD}${open}`);
  return ranges.map(({ start, end }, part) => {
    const isLast = part === ranges.length - 1;
    const own = isLast && metricsText !== '{}' ? `,${metricsText.slice(1)}` : '}';
    const reserved = `{"part":${part},"parts":${ranges.length},"encoding":${encoding}`;
    const tail = Buffer.from(`${close}${METRICS_KEY}${reserved}${own}}`);
    return Buffer.concat([head, json.subarray(start, end), tail]);
  });
}

function cutString(json: Buffer, room: number): Range[] {
  const ranges: Range[] = [];
  const stop = json.length - 1;
  let start = 1;
  while (stop - start > room) {
    const end = findCut(json, start, start + room);
    ranges.push({ start, end });
    start = end;
  }
  ranges.push({ start, end: stop });
  return ranges;
}

/** The last place up to `limit` where a JSON string may be cut: between characters and escapes. */
function findCut(json: Buffer, start: number, limit: number): number {
  let cut = limit;
  while (((json[cut] ?? 0) & 0xc0) === 0x80) cut -= 1;
  for (let slash = cut - 1; slash >= cut - 5; slash -= 1) {
    if (json[slash] !== BACKSLASH) continue;
    let runStart = slash;
    while (runStart > start && json[runStart - 1] === BACKSLASH) runStart -= 1;
    // In a run of backslashes each pair is one escaped backslash; an odd one out opens an escape.
    if ((slash - runStart) % 2 === 1) return cut;
    const escapeBytes = json[slash + 1] === LETTER_U ? 6 : 2;
    return slash + escapeBytes > cut ? slash : cut;
  }
  return cut;
}

/** Runs of whole elements, without the commas between runs; undefined if an element is too large. */
function cutArray(json: Buffer, room: number): Range[] | undefined {
  const ranges: Range[] = [];
  let start = 1;
  let fitting = 0;
  let elementStart = 1;
  while (elementStart < json.length) {
    const end = findElementEnd(json, elementStart);
    if (end - start > room) {
      if (fitting === 0 || end - elementStart > room) return undefined;
      ranges.push({ start, end: fitting });
      start = elementStart;
    }
    fitting = end;
    elementStart = end + 1;
  }
  ranges.push({ start, end: fitting });
  return ranges;
}

/** Where the comma or bracket stands that ends the array element beginning at `start`. */
function findElementEnd(json: Buffer, start: number): number {
  let depth = 0;
  for (let at = start; at < json.length; at += 1) {
    const byte = json[at];
    if (byte === QUOTE) at = findStringEnd(json, at);
    else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) depth += 1;
    else if (depth === 0 && (byte === COMMA || byte === CLOSE_BRACKET)) return at;
    else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) depth -= 1;
  }
  return json.length;
}

function findStringEnd(json: Buffer, openQuote: number): number {
  let at = openQuote + 1;
  while (at < json.length && json[at] !== QUOTE) at += json[at] === BACKSLASH ? 2 : 1;
  return at;
}

interface Piece {
  readonly encoding: number;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

/** Follows the parts of each value and throws where one is missing, repeated or out of order. */
class PartSequence {
  #next = 0;
  #parts = 0;
  #encoding = 0;

  /** What the chunk with these metrics is; undefined if it is a whole value. */
  accept({ part, parts, encoding }: Metrics): Piece | undefined {
    if (part === undefined) {
      if (this.#next > 0) throw this.#fail('a whole value');
      return undefined;
    }
    if (parts === undefined || encoding === undefined) {
      throw new Error('a chunk has the metric "part" without "parts" and "encoding"');
    }
    if (encoding !== ENCODING.string && encoding !== ENCODING.array && encoding !== ENCODING.text) {
      throw new Error(`a chunk has the unknown encoding ${encoding}`);
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

  #fail(found: string): Error {
    const expected = `part ${this.#next} of ${this.#parts}, encoding ${this.#encoding}`;
    return new Error(`chunks are incomplete or out of order: expected ${expected}; found ${found}`);
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

/** The output's bytes, and the metrics of a piece; those of whole values are not looked at. */
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

/** Bytes that grow up to a limit; past it they only remember that there were more. */
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

function viewBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
