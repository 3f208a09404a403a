// Parses a container's log as the engine sends it: pieces of both outputs, each behind a header of
// eight bytes. Pure.

const HEADER_BYTES = 8;
const LENGTH_AT = 4;

/** Returns the pieces without their headers, in order. */
export function joinPieces(answer: Buffer): Buffer {
  const pieces: Buffer[] = [];
  let at = 0;
  while (at + HEADER_BYTES <= answer.length) {
    const begin = at + HEADER_BYTES;
    at = begin + answer.readUInt32BE(at + LENGTH_AT);
    pieces.push(answer.subarray(begin, at));
  }
  return Buffer.concat(pieces);
}

/**
 * Engines count lines: first request as many lines as usually fill these bytes, then as many as
 * possibly can.
 */
export function guessLines(maxBytes: number): number[] {
  return [Math.ceil(maxBytes / 64), maxBytes];
}

export function countLines(printed: Buffer): number {
  return printed.reduce((count, byte) => (byte === 0x0a ? count + 1 : count), 0);
}
