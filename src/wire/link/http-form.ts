// The worker link on HTTP, as workers and the nodes of a platform call it: a POST for each verb. Leases and reports are frames
// (frames.ts), everything else is JSON.
import { PROBLEMS } from '../problem.ts';
import { WORKER_HEADERS } from '../routes/routes.ts';
import { type LinkAnswer, type LinkCall, refuseAnswer } from './carried-link.ts';
import { decodeFrames, encodeFrames, FRAMES_MEDIA_TYPE, FrameError } from './frames.ts';
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
