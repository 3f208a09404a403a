// Cuts the JSON of an output that is too large for one chunk into pieces.
//
// All pieces of one value have the same encoding. So an array with an element too large for a
// piece of its own goes as the JSON text of the whole array: pieces of mixed encodings could not
// tell [x] from x, nor two large neighbours from one, and every client would need more than
// "concatenate, then parse".

import {
  bufferByteLength,
  bufferConcat,
  bufferCut,
  bufferFrom,
  bufferText,
  ceil,
  jsonStringify,
  stringCut,
} from '../primordials.ts';
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  ENCODING,
  HEAD,
  LETTER_U,
  METRICS_KEY,
  OPEN_BRACE,
  OPEN_BRACKET,
  PIECE_FRAME,
  QUOTE,
} from './chunk-layout.ts';

/** A piece must have room for the longest thing that is never cut, `\uXXXX`, twice. */
const MIN_ROOM_BYTES = 12;

interface Range {
  readonly start: number;
  readonly end: number;
}

/** The pieces of `json`, each at most `maxBytes`; the metrics are on the last one. */
export function splitJson(json: Buffer, metricsText: string, maxBytes: number): Buffer[] {
  const roomFor = (bytes: number) => computeRoom(bytes, metricsText, maxBytes);
  if (json[0] === QUOTE) {
    return writePieces(json, cutString(json, roomFor(json.length)), ENCODING.string, metricsText);
  }
  const elements = json[0] === OPEN_BRACKET ? cutArray(json, roomFor(json.length)) : undefined;
  if (elements !== undefined) return writePieces(json, elements, ENCODING.array, metricsText);
  const text = bufferFrom(jsonStringify(bufferText(json)));
  return writePieces(text, cutString(text, roomFor(text.length)), ENCODING.text, metricsText);
}

/**
 * How many bytes of output each piece takes. The metrics are counted in every piece although only
 * the last one has them: one size for all is worth more than the few bytes.
 */
function computeRoom(bytes: number, metricsText: string, maxBytes: number): number {
  const metricsBytes = metricsText === '{}' ? 0 : bufferByteLength(metricsText) - 1;
  for (let digits = 1; ; digits += 1) {
    const room = maxBytes - PIECE_FRAME.length - metricsBytes - 2 * digits;
    if (room < MIN_ROOM_BYTES) {
      throw new RangeError(`a chunk of ${maxBytes} bytes has no room for output and metrics`);
    }
    // Two neighbours are always more than one room together, so this many parts are never passed.
    const mostParts = ceil((2 * bytes) / room) + 2;
    if (`${mostParts}`.length <= digits) return room;
  }
}

function writePieces(
  json: Buffer,
  ranges: readonly Range[],
  encoding: number,
  metricsText: string,
): Buffer[] {
  const open = encoding === ENCODING.array ? '[' : '"';
  const close = encoding === ENCODING.array ? ']' : '"';
  const head = bufferFrom(`${HEAD}${open}`);
  const pieces: Buffer[] = [];
  for (let part = 0; part < ranges.length; part += 1) {
    const range = ranges[part];
    if (range === undefined) break;
    const isLast = part === ranges.length - 1;
    const own = isLast && metricsText !== '{}' ? `,${stringCut(metricsText, 1)}` : '}';
    const reserved = `{"part":${part},"parts":${ranges.length},"encoding":${encoding}`;
    const tail = bufferFrom(`${close}${METRICS_KEY}${reserved}${own}}`);
    pieces[part] = bufferConcat([head, bufferCut(json, range.start, range.end), tail]);
  }
  return pieces;
}

function cutString(json: Buffer, room: number): Range[] {
  const ranges: Range[] = [];
  const stop = json.length - 1;
  let start = 1;
  while (stop - start > room) {
    const end = findCut(json, start, start + room);
    ranges[ranges.length] = { start, end };
    start = end;
  }
  ranges[ranges.length] = { start, end: stop };
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
      ranges[ranges.length] = { start, end: fitting };
      start = elementStart;
    }
    fitting = end;
    elementStart = end + 1;
  }
  ranges[ranges.length] = { start, end: fitting };
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
