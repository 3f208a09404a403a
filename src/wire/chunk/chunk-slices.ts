// Splits the JSON of a large output into the same chunks as chunk-split.ts. It is a generator that
// pauses between slices, so that the platform can serve other requests.

import { OPEN_BRACKET, QUOTE } from '../json-bytes.ts';
import { viewBuffer } from './chunk-layout.ts';
import { ENCODING } from './chunk-pieces.ts';
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

/** `maxBytes`: limit of one chunk; the output must be larger. */
export function* splitInSlices(
  output: Uint8Array,
  { maxBytes }: { maxBytes: number },
): Generator<void, Uint8Array[]> {
  const json = viewBuffer(output);
  const capacityFor = (bytes: number) => computeCapacity(bytes, NO_METRICS, maxBytes);
  if (json[0] === QUOTE) {
    return yield* writePieces(json, cutString(json, capacityFor(json.length)), ENCODING.string);
  }
  const runs =
    json[0] === OPEN_BRACKET ? yield* cutArray(json, capacityFor(json.length)) : undefined;
  if (runs) return yield* writePieces(json, runs, ENCODING.array);
  const text = yield* quote(json);
  return yield* writePieces(text, cutString(text, capacityFor(text.length)), ENCODING.text);
}

function* cutArray(json: Buffer, capacity: number): Generator<void, Range[] | undefined> {
  const cut = startArrayCut();
  while (!advanceArrayCut(json, capacity, cut, cut.elementStart + SLICE_BYTES)) yield;
  return cut.ranges;
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
