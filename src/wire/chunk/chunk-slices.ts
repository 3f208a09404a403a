// Splits the JSON of a large output into chunks as chunk.ts does, with pauses: the platform serves others
// meanwhile.
import { ENCODING, OPEN_BRACKET, QUOTE, viewBuffer } from './chunk-layout.ts';
import {
  advanceArrayCut,
  computeCapacity,
  cutString,
  type Range,
  startArrayCut,
  writePiece,
} from './chunk-split.ts';

/** Bytes between two pauses. */
const SLICE_BYTES = 524_288;
const NO_METRICS = '{}';

/** `maxBytes`: of one chunk. The output has to be larger. */
export function* splitInSlices(
  output: Uint8Array,
  { maxBytes }: { maxBytes: number },
): Generator<void, Uint8Array[]> {
  const json = viewBuffer(output);
  const roomFor = (bytes: number) => computeCapacity(bytes, NO_METRICS, maxBytes);
  if (json[0] === QUOTE) {
    return yield* writePieces(json, cutString(json, roomFor(json.length)), ENCODING.string);
  }
  const runs = json[0] === OPEN_BRACKET ? yield* cutArray(json, roomFor(json.length)) : undefined;
  if (runs) return yield* writePieces(json, runs, ENCODING.array);
  const text = yield* quote(json);
  return yield* writePieces(text, cutString(text, roomFor(text.length)), ENCODING.text);
}

function* cutArray(json: Buffer, room: number): Generator<void, Range[] | undefined> {
  const cut = startArrayCut();
  while (!advanceArrayCut(json, room, cut, cut.elementStart + SLICE_BYTES)) yield;
  return cut.ranges;
}

/** As JSON.stringify of the text does. */
function* quote(json: Buffer): Generator<void, Buffer> {
  const parts: Buffer[] = [Buffer.from('"')];
  for (let start = 0; start < json.length; ) {
    let end = Math.min(json.length, start + SLICE_BYTES);
    // Not within a code point.
    while (((json[end] ?? 0) & 0xc0) === 0x80) end -= 1;
    const text = JSON.stringify(json.toString('utf8', start, end));
    parts.push(Buffer.from(text.slice(1, -1)));
    start = end;
    yield;
  }
  parts.push(Buffer.from('"'));
  return Buffer.concat(parts);
}

function* writePieces(
  json: Buffer,
  ranges: readonly Range[],
  encoding: number,
): Generator<void, Uint8Array[]> {
  const pieces: Uint8Array[] = [];
  for (let part = 0; part < ranges.length; part += 1) {
    pieces.push(writePiece({ json, ranges, encoding, metricsText: NO_METRICS }, part));
    yield;
  }
  return pieces;
}
