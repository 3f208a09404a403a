// Parses a container's log as the engine sends it: pieces of both outputs, each behind a header of
// eight bytes. Pure.

const HEADER_BYTES = 8;
const LENGTH_AT = 4;

/** Returns the pieces without their headers, in order; those that arrive together as one. */
export async function* joinPieces(answer: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const header = Buffer.alloc(HEADER_BYTES);
  let headerBytes = 0;
  let missing = 0;
  for await (const bytes of answer) {
    const parts: Buffer[] = [];
    let at = 0;
    while (at < bytes.length) {
      const part = bytes.subarray(at, at + missing);
      parts.push(part);
      missing -= part.length;
      at += part.length;
      if (missing > 0) break;
      const read = bytes.copy(header, headerBytes, at);
      headerBytes += read;
      at += read;
      if (headerBytes < HEADER_BYTES) break;
      headerBytes = 0;
      missing = header.readUInt32BE(LENGTH_AT);
    }
    yield Buffer.concat(parts);
  }
}
