// Reads the bodies of an engine's answers, within bounds.

const MAX_BYTES = 256 * 1_048_576;
/** Bytes that are read of an error; the rest is ignored. */
const MAX_ERROR_BYTES = 65_536;

/** @throws Error if the body is too large */
export async function readBody(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > MAX_BYTES) throw new Error(`the answer has more than ${MAX_BYTES} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** The start of an error's text. */
export async function readErrorText(body: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes >= MAX_ERROR_BYTES) break;
  }
  return Buffer.concat(pieces).subarray(0, MAX_ERROR_BYTES).toString();
}
