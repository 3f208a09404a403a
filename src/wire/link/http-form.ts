// The worker link on HTTP, as workers and the nodes of a platform call it: a POST for each verb. Leases and reports are
// frames, everything else is JSON. A frame is two big-endian 32-bit lengths (header, body), the header's JSON, and the body.

import { countValues } from '../message-bounds.ts';
import { PROBLEMS } from '../problem.ts';
import { WORKER_HEADERS } from '../routes/routes.ts';
import { type LinkAnswer, type LinkCall, refuseAnswer } from './carried-link.ts';
import type { LinkErrorCode } from './worker-link.ts';

/** Headers and pieces of the body. */
export function encodeCall(call: LinkCall): {
  headers: Record<string, string>;
  body: string | readonly Uint8Array[];
} {
  if (call.verb !== 'report') {
    return {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(call.content),
    };
  }
  const { bodies, content } = call;
  const frames = content.reports.map((header, index) => ({
    header,
    body: bodies[index] ?? new Uint8Array(0),
  }));
  return {
    headers: {
      'content-type': FRAMES_MEDIA_TYPE,
      [WORKER_HEADERS.worker]: content.workerId,
      [WORKER_HEADERS.incarnation]: String(content.incarnation),
    },
    body: encodeFrames(frames),
  };
}

export interface HttpAnswer {
  status: number;
  headers: { readonly 'content-type'?: string | undefined };
  body: Uint8Array;
}

/** Reads the answer of a call that succeeded. @throws LinkError */
export function decodeAnswer(
  { verb }: LinkCall,
  { body, headers, status }: HttpAnswer,
): LinkAnswer {
  if (verb === 'bye') return { content: undefined, bodies: [] };
  if (verb !== 'take') return { content: parseJson(body), bodies: [] };
  if (status === 204) return { content: [], bodies: [] };
  const mediaType = headers['content-type']?.split(';')[0]?.trim() ?? '';
  if (mediaType !== FRAMES_MEDIA_TYPE) throw refuseAnswer(`it has media type '${mediaType}'`);
  try {
    const frames = decodeFrames(body);
    return {
      content: frames.map(({ header }) => header),
      bodies: frames.map(({ body: input }) => input),
    };
  } catch (error) {
    throw error instanceof FrameError ? refuseAnswer(error.message, error) : error;
  }
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString());
  } catch {
    throw refuseAnswer('it is not JSON');
  }
}

export interface HttpRefusal {
  code: LinkErrorCode;
  /** `code` and `detail` of the problem, as far as present: the answer may come from any server. */
  problem: string | undefined;
  detail: string | undefined;
}

/**
 * 401 and 403: `unauthorized`. 409 with one of Millrace's codes: that code. 404, 408, 425, 429 and
 * 5xx: `unavailable`, because they are temporary. All others, redirects included: `invalid`.
 */
export function readRefusal({ body, status }: Pick<HttpAnswer, 'body' | 'status'>): HttpRefusal {
  const { code: problem, detail } = readProblem(body);
  return { code: judge(status, problem), problem, detail };
}

function judge(status: number, problem: string | undefined): LinkErrorCode {
  if (status === 401 || status === 403) return 'unauthorized';
  const isWorkers = problem === 'stale_incarnation' || problem === 'unknown_worker';
  if (isWorkers && status === PROBLEMS[problem][0]) return problem;
  if (status >= 500 || [404, 408, 425, 429].includes(status)) return 'unavailable';
  return 'invalid';
}

function readProblem(body: Uint8Array): { code?: string; detail?: string } {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(body));
  } catch {
    return {};
  }
  if (typeof value !== 'object' || value === null) return {};
  const problem: { code?: string; detail?: string } = {};
  if ('code' in value && typeof value.code === 'string') problem.code = value.code;
  if ('detail' in value && typeof value.detail === 'string') problem.detail = value.detail;
  return problem;
}

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
