// Cuts what is uploaded into parts of one size, which fit into memory.
import { open } from 'node:fs/promises';

/** A file, bytes in memory, or a stream of bytes: exactly one of them. */
export type UploadSource =
  | { file: string; bytes?: never; stream?: never }
  | { bytes: Uint8Array; file?: never; stream?: never }
  | { stream: AsyncIterable<Uint8Array>; bytes?: never; file?: never };

/** The parts; only the last one may be shorter. Without bytes it is one empty part. */
export async function* cutParts(
  source: UploadSource,
  partBytes: number,
): AsyncGenerator<Buffer, void, void> {
  if (source.bytes) yield* cutBytes(source.bytes, partBytes);
  else if (source.stream) yield* gather(source.stream, partBytes);
  else yield* readFile(source.file, partBytes);
}

function* cutBytes(bytes: Uint8Array, partBytes: number): Generator<Buffer, void, void> {
  const whole = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at === 0 || at < whole.length; at += partBytes) {
    yield whole.subarray(at, at + partBytes);
  }
}

async function* gather(
  stream: AsyncIterable<Uint8Array>,
  partBytes: number,
): AsyncGenerator<Buffer, void, void> {
  let part = Buffer.allocUnsafe(partBytes);
  let filled = 0;
  let count = 0;
  for await (const piece of stream) {
    for (let at = 0; at < piece.length; ) {
      const taken = piece.subarray(at, at + partBytes - filled);
      part.set(taken, filled);
      filled += taken.length;
      at += taken.length;
      if (filled < partBytes) continue;
      count += 1;
      yield part;
      part = Buffer.allocUnsafe(partBytes);
      filled = 0;
    }
  }
  if (filled > 0 || count === 0) yield part.subarray(0, filled);
}

/** @throws Error if it is not a regular file: a device or a pipe may have no end */
async function* readFile(path: string, partBytes: number): AsyncGenerator<Buffer, void, void> {
  await using file = await open(path, 'r');
  if (!(await file.stat()).isFile()) throw new Error(`${path}: is not a file`);
  for (let count = 0; ; count += 1) {
    const part = Buffer.allocUnsafe(partBytes);
    let filled = 0;
    while (filled < partBytes) {
      const { bytesRead } = await file.read(part, filled, partBytes - filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    if (filled > 0 || count === 0) yield part.subarray(0, filled);
    if (filled < partBytes) return;
  }
}
