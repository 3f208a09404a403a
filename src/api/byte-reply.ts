// Answers whose bytes are ready: written as they are, large ones piece by piece without a copy.
import type { ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';

export const JSON_MEDIA_TYPE = 'application/json; charset=utf-8';

/** Up to here one copy and one write cost less than many writes. */
const JOIN_BYTES = 64 * 1024;

export interface BytesAnswer {
  mediaType: string;
  pieces: readonly Uint8Array[];
}

/** Status and headers set on the reply before are kept. */
export function sendBytes(reply: FastifyReply, { mediaType, pieces }: BytesAnswer): FastifyReply {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  reply.header('content-type', mediaType);
  if (length <= JOIN_BYTES) return reply.send(Buffer.concat(pieces, length));
  const raw = takeOver(reply);
  raw.setHeader('content-length', length);
  for (const piece of joinSmall(pieces)) raw.write(piece);
  raw.end();
  return reply;
}

/** What is behind the reply, with the status and headers that were set on it: nothing is sent yet. */
export function takeOver(reply: FastifyReply): ServerResponse {
  const { raw } = reply.hijack();
  raw.statusCode = reply.statusCode;
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) raw.setHeader(name, value);
  }
  return raw;
}

/** The same bytes in fewer pieces: a write costs more than a copy of the little that it writes. */
export function* joinSmall(pieces: Iterable<Uint8Array>): Generator<Uint8Array> {
  let small: Uint8Array[] = [];
  let bytes = 0;
  for (const piece of pieces) {
    if (bytes > 0 && bytes + piece.length > JOIN_BYTES) {
      yield Buffer.concat(small, bytes);
      small = [];
      bytes = 0;
    }
    if (piece.length > JOIN_BYTES) {
      yield piece;
    } else {
      small.push(piece);
      bytes += piece.length;
    }
  }
  if (bytes > 0) yield Buffer.concat(small, bytes);
}

const OPEN = Buffer.from('[');
const COMMA = Buffer.from(',');
const CLOSE = Buffer.from(']');

/** The pieces of a JSON array of elements that are JSON already. */
export function joinAsArray(elements: readonly Uint8Array[]): Uint8Array[] {
  const pieces: Uint8Array[] = [OPEN];
  for (const [index, element] of elements.entries()) {
    if (index > 0) pieces.push(COMMA);
    pieces.push(element);
  }
  pieces.push(CLOSE);
  return pieces;
}
