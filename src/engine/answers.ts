// Reads what engines answer, within bounds: bodies, streams of JSON documents, and the end of a container's log.
import { iterateLines } from '../base/text/line-reader.ts';

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

/** Of one document; the largest ones are Pods with their annotations. */
const MAX_LINE_CHARS = 4 * 1_048_576;

/** @throws Error for a line that is too long or no JSON */
export async function* readDocuments(
  stream: AsyncIterable<string | Buffer>,
): AsyncGenerator<unknown> {
  for await (const line of iterateLines(stream, MAX_LINE_CHARS)) {
    if (line.trim() !== '') yield JSON.parse(line);
  }
}

/** `open`: the given number of lines at the end of the log; undefined if the container has no log. */
export async function readLogTail(
  open: (lines: number) => Promise<AsyncIterable<Buffer> | undefined>,
  maxBytes: number,
): Promise<Uint8Array> {
  let tail: Uint8Array = new Uint8Array();
  // First as many lines as usually fill the bytes, then as many as possibly can.
  for (const lines of [Math.ceil(maxBytes / 64), maxBytes]) {
    const read = await readTail((await open(lines)) ?? [], maxBytes);
    tail = read.tail;
    if (tail.length >= maxBytes || read.lines < lines) break;
  }
  return tail;
}

/** Holds little more than the bytes in memory, because a container may write lines of any length. */
async function readTail(
  log: AsyncIterable<Buffer> | Iterable<Buffer>,
  maxBytes: number,
): Promise<{ tail: Uint8Array; lines: number }> {
  const pieces: Buffer[] = [];
  let [kept, lines] = [0, 0];
  for await (const piece of log) {
    pieces.push(piece);
    kept += piece.length;
    for (let at = piece.indexOf('\n'); at !== -1; at = piece.indexOf('\n', at + 1)) lines++;
    while (pieces[0] && kept - pieces[0].length >= maxBytes) kept -= pieces.shift()?.length ?? 0;
  }
  return { tail: Buffer.concat(pieces).subarray(-maxBytes), lines };
}
