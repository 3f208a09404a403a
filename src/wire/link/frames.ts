// Encodes several headers, each with a body of bytes, as one message; leases and reports use it. A
// frame is two big-endian 32-bit lengths (header, body), the header's JSON, and the body.

import { countValues } from '../message-bounds.ts';

export const FRAMES_MEDIA_TYPE = 'application/vnd.millrace.frames';

const PREFIX_BYTES = 8;
const NO_BODY = new Uint8Array(0);

export interface Frame {
  header: unknown;
  body: Uint8Array;
}

export class FrameError extends Error {
  override readonly name = 'FrameError';
}

/** The message exceeds the receiver's bounds. */
export class FrameBoundError extends FrameError {}

interface FrameBounds {
  /** Frames of the message. */
  frames: number;
  /** JSON values of all headers together, counted by `countValues`. */
  values: number;
}

/** Returns the message as pieces to write one after the other; bodies are not copied. */
export function encodeFrames(frames: Iterable<Frame>): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (const { header, body } of frames) {
    const text = Buffer.from(JSON.stringify(header));
    const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
    prefix.writeUInt32BE(text.length, 0);
    prefix.writeUInt32BE(body.length, 4);
    pieces.push(prefix, text);
    if (body.length > 0) pieces.push(body);
  }
  return pieces;
}

/**
 * Returns the frames of a whole message; bodies are views into it. Rejects a message beyond the
 * bounds before it parses any header. @throws FrameError, FrameBoundError
 */
export function decodeFrames(message: Uint8Array, bounds?: FrameBounds): Frame[] {
  const bytes = Buffer.from(message.buffer, message.byteOffset, message.byteLength);
  const ranges = findFrames(bytes, bounds?.frames);
  if (bounds) checkValues(bytes, ranges, bounds.values);
  return ranges.map(({ headerAt, bodyAt, end }) => ({
    header: parseHeader(bytes.toString('utf8', headerAt, bodyAt)),
    body: end > bodyAt ? bytes.subarray(bodyAt, end) : NO_BODY,
  }));
}

interface FrameRange {
  headerAt: number;
  bodyAt: number;
  end: number;
}

function findFrames(bytes: Buffer, limit = Number.POSITIVE_INFINITY): FrameRange[] {
  const ranges: FrameRange[] = [];
  for (let at = 0; at < bytes.length; ) {
    if (ranges.length >= limit)
      throw new FrameBoundError(`the message has more than ${limit} frames`);
    const headerAt = at + PREFIX_BYTES;
    if (headerAt > bytes.length) {
      throw new FrameError(`message ends within a frame prefix at byte ${at}`);
    }
    const bodyAt = headerAt + bytes.readUInt32BE(at);
    const end = bodyAt + bytes.readUInt32BE(at + 4);
    if (end > bytes.length) throw new FrameError(`frame at byte ${at} is longer than its message`);
    ranges.push({ headerAt, bodyAt, end });
    at = end;
  }
  return ranges;
}

function checkValues(bytes: Buffer, ranges: readonly FrameRange[], limit: number): void {
  // Each value needs a byte: most messages are too short to have so many.
  if (bytes.length <= limit) return;
  let left = limit;
  for (const { bodyAt, headerAt } of ranges) {
    left -= countValues(bytes.subarray(headerAt, bodyAt), left + 1);
    if (left < 0) throw new FrameBoundError(`the headers have more than ${limit} values`);
  }
}

function parseHeader(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new FrameError('frame header is not JSON', { cause });
  }
}
