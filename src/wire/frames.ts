// Several headers with a body of bytes each in one message: how leases and reports travel. A frame
// is two big-endian 32-bit lengths (header, body), the header's JSON, and the body as it is.

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

/** The message's pieces, to be written one after the other; bodies are not copied. */
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

/** The frames of a whole message; bodies are views into it. Throws FrameError. */
export function decodeFrames(message: Uint8Array): Frame[] {
  const bytes = Buffer.from(message.buffer, message.byteOffset, message.byteLength);
  const frames: Frame[] = [];
  let at = 0;
  while (at < bytes.length) {
    if (at + PREFIX_BYTES > bytes.length)
      throw new FrameError(`message ends within a frame prefix at byte ${at}`);
    const headerEnd = at + PREFIX_BYTES + bytes.readUInt32BE(at);
    const bodyEnd = headerEnd + bytes.readUInt32BE(at + 4);
    if (bodyEnd > bytes.length)
      throw new FrameError(`frame at byte ${at} is longer than its message`);
    const body = bodyEnd > headerEnd ? bytes.subarray(headerEnd, bodyEnd) : NO_BODY;
    frames.push({
      header: parseHeader(bytes.toString('utf8', at + PREFIX_BYTES, headerEnd)),
      body,
    });
    at = bodyEnd;
  }
  return frames;
}

function parseHeader(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new FrameError('frame header is not JSON', { cause });
  }
}
