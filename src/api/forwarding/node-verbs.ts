// The verbs of a worker as HTTP requests to the node that owns its endpoint, and what their answers mean.
import type { IncomingHttpHeaders } from 'node:http';
import type { ZodType } from 'zod';
import { readRetryAfterMs } from '../../base/backoff.ts';
import {
  decodeFrames,
  encodeFrames,
  FRAMES_MEDIA_TYPE,
  FrameError,
} from '../../wire/link/frames.ts';
import {
  type Lease,
  LinkError,
  type LinkErrorCode,
  type ReportReply,
  type ReportRequest,
  type TakeRequest,
} from '../../wire/link/worker-link.ts';
import { leaseHeader, reportReply } from '../../wire/link/worker-link-schemas.ts';
import { WORKER_HEADERS, type WorkerVerb } from '../../wire/routes/routes.ts';

export interface VerbCall {
  verb: WorkerVerb;
  body: Uint8Array;
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
}

export interface VerbAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

export function encodeJson(verb: WorkerVerb, message: object): VerbCall {
  const headers = { 'content-type': 'application/json' };
  return { verb, headers, body: Buffer.from(JSON.stringify(message)) };
}

export function encodeReports({ incarnation, reports, workerId }: ReportRequest): VerbCall {
  const frames = reports.map(({ body, ...header }) => ({ header, body }));
  return {
    verb: 'report',
    body: Buffer.concat(encodeFrames(frames)),
    headers: {
      'content-type': FRAMES_MEDIA_TYPE,
      [WORKER_HEADERS.worker]: workerId,
      [WORKER_HEADERS.incarnation]: String(incarnation),
    },
  };
}

export function parseJson<T>({ body }: VerbAnswer, schema: ZodType<T>): T {
  try {
    return schema.parse(JSON.parse(body.toString()));
  } catch (cause) {
    throw new LinkError('unavailable', "the node's answer cannot be read", { cause });
  }
}

export function readLeases({ body, status }: VerbAnswer, { max }: TakeRequest): Lease[] {
  if (status === 204) return [];
  try {
    const bounds = { frames: max, values: Number.POSITIVE_INFINITY };
    return decodeFrames(body, bounds).map(({ body: input, header }) => ({
      ...leaseHeader.parse(header),
      input,
    }));
  } catch (cause) {
    const why = cause instanceof FrameError ? cause.message : 'a lease is invalid';
    throw new LinkError('unavailable', `the node's answer cannot be read: ${why}`, { cause });
  }
}

export function readReplies(answer: VerbAnswer, { reports }: ReportRequest): ReportReply[] {
  const replies = parseJson(answer, reportReply.array());
  if (replies.length === reports.length) return replies;
  throw new LinkError('unavailable', `${replies.length} answers to ${reports.length} reports`);
}

/** @throws LinkError */
export function requireSuccess(answer: VerbAnswer): VerbAnswer {
  const { body, headers, status } = answer;
  if (status >= 200 && status < 300) return answer;
  const { code, detail } = readProblem(body);
  const retryAfterMs = readRetryAfterMs(headers['retry-after'], Date.now());
  throw new LinkError(judge(status, code), detail, { retryAfterMs });
}

function judge(status: number, code: string | undefined): LinkErrorCode {
  if (status === 401 || status === 403) return 'unauthorized';
  if (code === 'stale_incarnation' || code === 'unknown_worker') return code;
  return status >= 500 || [404, 408, 429].includes(status) ? 'unavailable' : 'invalid';
}

function readProblem(body: Buffer): { code?: string; detail: string } {
  try {
    const { code, detail } = JSON.parse(body.toString());
    return { code: String(code), detail: String(detail) };
  } catch {
    return { detail: 'the node refused the call' };
  }
}
