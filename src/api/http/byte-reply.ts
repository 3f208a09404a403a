// Sends responses whose bytes are ready. Large ones are sent slice by slice without a copy, at the
// client's pace and within the budget of bytes in flight.
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { FlowRequest, Loaded } from '../limits/flows.ts';
import { abortWhenGone } from './problem-reply.ts';

export const JSON_MEDIA_TYPE = 'application/json; charset=utf-8';
/** Names the charset, because clients such as python-requests otherwise assume Latin-1. */
export const EVENTS_MEDIA_TYPE = 'text/event-stream; charset=utf-8';

/** A comment is sent after this time without a chunk, because proxies close silent connections. */
export const KEEP_ALIVE_MS = 15_000;

/** Up to this size, one copy and one write cost less than many writes. */
const JOIN_BYTES = 64 * 1024;

/** Most bytes of one UTF-16 unit of a string. */
const MAX_UTF8_BYTES = 3;

/** Size of one write of a large response, after which the client's progress is checked. */
const WRITE_BYTES = 64 * 1024;

/** Bytes of a response that one iteration of the event loop writes, before other requests run. */
const ITERATION_BYTES = 262_144;

export interface BytesAnswer {
  mediaType: string;
  pieces: readonly Uint8Array[];
}

/**
 * Keeps status and headers that were set on the reply. Large responses count as in flight until
 * they are written. @throws ProblemError `unavailable` if the budget of bytes in flight is full
 */
export function sendBytes(reply: FastifyReply, answer: BytesAnswer): Promise<FastifyReply> {
  return send(reply, { patience: 'none', load: () => answer });
}

/**
 * Like `sendBytes`, for responses that must not be in memory while they wait for the budget.
 * Measures them before it loads them, or loads them again after the wait. @throws ProblemError
 * `unavailable`
 */
export function sendLoaded(
  reply: FastifyReply,
  loading: Pick<FlowRequest<BytesAnswer>, 'load' | 'measure'>,
): Promise<FastifyReply> {
  return send(reply, { patience: 'default', ...loading });
}

/** A small answer of JSON. */
export async function sendJson(reply: FastifyReply, value: object): Promise<FastifyReply> {
  const json = JSON.stringify(value);
  // A string goes out in one piece with the head; bytes would be a second one.
  if (json.length * MAX_UTF8_BYTES <= JOIN_BYTES) {
    return reply.header('content-type', JSON_MEDIA_TYPE).send(json);
  }
  return sendBytes(reply, { mediaType: JSON_MEDIA_TYPE, pieces: [Buffer.from(json)] });
}

/** Sends bytes that are always in memory, for all callers: they are not counted. */
export function sendShared(reply: FastifyReply, answer: BytesAnswer): FastifyReply {
  if (countBytes(answer) <= JOIN_BYTES) return sendSmall(reply, answer);
  writePaced(reply, answer, { bytes: 0 });
  return reply;
}

async function send(
  reply: FastifyReply,
  loading: Pick<FlowRequest<BytesAnswer>, 'load' | 'measure' | 'patience'>,
): Promise<FastifyReply> {
  const { raw, request, server } = reply;
  const written = { bytes: 0 };
  const loaded = await server.flows.load(request, {
    ...loading,
    sizeOf: countBytes,
    signal: () => abortWhenGone(raw),
    moved: () => written.bytes,
    drop: () => raw.destroy(),
  });
  if (!loaded) return reply.hijack();
  const { claim, value: answer } = loaded;
  if (countBytes(answer) <= JOIN_BYTES) {
    claim.release();
    return sendSmall(reply, answer);
  }
  raw.once('close', claim.release);
  if (raw.closed) claim.release();
  writePaced(reply, answer, written);
  return reply;
}

function countBytes({ pieces }: BytesAnswer): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}

function sendSmall(reply: FastifyReply, { mediaType, pieces }: BytesAnswer): FastifyReply {
  return reply.header('content-type', mediaType).send(Buffer.concat(pieces));
}

/** At the client's pace: unread bytes stay in the pieces, not in a queue of the connection. */
function writePaced(reply: FastifyReply, answer: BytesAnswer, written: { bytes: number }): void {
  reply.header('content-type', answer.mediaType);
  const { flows } = reply.server;
  const raw = takeOver(reply);
  // No 'close' event will follow to cancel the limit.
  if (raw.closed) return;
  raw.setHeader('content-length', countBytes(answer));
  raw.once(
    'close',
    flows.limit(() => raw.destroy()),
  );
  const slices = cutSlices(joinSmall(answer.pieces));
  let iterationBytes = 0;
  const writeOn = () => {
    while (!raw.destroyed) {
      if (iterationBytes >= ITERATION_BYTES) {
        iterationBytes = 0;
        setImmediate(writeOn);
        return;
      }
      const { done, value: slice } = slices.next();
      if (done) {
        raw.end();
        return;
      }
      written.bytes += slice.length;
      iterationBytes += slice.length;
      if (!raw.write(slice)) {
        raw.once('drain', writeOn);
        return;
      }
    }
  };
  writeOn();
}

/** Yields views of at most 64 KB. */
function* cutSlices(pieces: Iterable<Uint8Array>): Generator<Uint8Array> {
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += WRITE_BYTES) {
      yield piece.subarray(at, at + WRITE_BYTES);
    }
  }
}

/** Returns the raw response with the reply's status and headers; nothing is sent yet. */
export function takeOver(reply: FastifyReply): ServerResponse {
  const { raw } = reply.hijack();
  raw.statusCode = reply.statusCode;
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) raw.setHeader(name, value);
  }
  return raw;
}

/** Begins server-sent events, which no proxy may buffer. */
export function beginEvents(
  reply: FastifyReply,
  headers: Readonly<Record<string, string>> = {},
): ServerResponse {
  const raw = takeOver(reply);
  raw.writeHead(200, {
    'content-type': EVENTS_MEDIA_TYPE,
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    ...headers,
  });
  raw.flushHeaders();
  return raw;
}

/** Joins small pieces: a write costs more than a copy of few bytes. */
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

/** Returns the pieces of a JSON array whose elements are JSON already. */
export function joinAsArray(elements: readonly Uint8Array[]): Uint8Array[] {
  const pieces: Uint8Array[] = [OPEN];
  for (const [index, element] of elements.entries()) {
    if (index > 0) pieces.push(COMMA);
    pieces.push(element);
  }
  pieces.push(CLOSE);
  return pieces;
}

/** A client that reads events waits without a limit: its response is already open. */
export function loadInFlight<T>(
  { raw, request, server }: FastifyReply,
  loading: Pick<FlowRequest<T>, 'load' | 'measure' | 'sizeOf' | 'signal'> & {
    written: { bytes: number };
  },
): Promise<Loaded<T> | undefined> {
  const { written, ...rest } = loading;
  return server.flows.load(request, {
    ...rest,
    patience: 'endless',
    moved: () => written.bytes,
    drop: () => raw.destroy(),
  });
}

/** At the client's pace. */
export async function writeSlices(
  raw: ServerResponse,
  pieces: Iterable<Uint8Array>,
  { signal, written }: { signal: AbortSignal; written: { bytes: number } },
): Promise<void> {
  for (const bytes of cutSlices(joinSmall(pieces))) {
    if (signal.aborted) return;
    written.bytes += bytes.length;
    if (!raw.write(bytes)) await drained(raw, signal);
  }
}

async function drained(raw: ServerResponse, signal: AbortSignal): Promise<void> {
  try {
    await once(raw, 'drain', { signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
