// Defines the bytes of a chunk for the code that writes, splits and reassembles chunks.
//
// Layout: {"output":<json>,"metrics":<json>}, without white space; the metrics of a piece begin
// with {"part":. Metrics are flat numbers and quotes inside JSON strings are escaped, so the last
// `,"metrics":{` always ends the output. This allows taking chunks apart without parsing.

import { bufferFrom } from '../primordials.ts';

export const HEAD = '{"output":';
export const METRICS_KEY = ',"metrics":';
export const BOUNDARY = Buffer.from(`${METRICS_KEY}{`);
export const PIECE_BOUNDARY = Buffer.from(`${METRICS_KEY}{"part":`);
export const PIECE_FRAME = `${HEAD}""${METRICS_KEY}{"part":,"parts":,"encoding":0}}`;

/** A Buffer over the same bytes. */
export function viewBuffer(bytes: Uint8Array): Buffer {
  return bufferFrom(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
