// Serves GET /stream: a job's chunks, as one JSON array per call or as server-sent events (sse.ts).

import type { FastifyReply, FastifyRequest } from 'fastify';
import Negotiator from 'negotiator';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Queues } from '../../queue/queues.ts';
import type { Position, StreamPage } from '../../queue/reports/streams.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { type JOB_ROUTES, STREAM_HEADERS } from '../../wire/routes/routes.ts';
import { JSON_MEDIA_TYPE, joinAsArray } from '../http/byte-reply.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { readInteger, refuseParameter } from '../http/requests.ts';
import { EVENTS_MEDIA_TYPE, sendEvents } from '../http/sse.ts';
import { type JobRoute, readJobKey } from './job-routes.ts';
import type { OperationHandler } from './operation-routes.ts';
import { type StreamCursors, sendAfter, sendNext } from './stream-answers.ts';

/** Before the first chunk of the current attempt. */
const START: Position = { attempt: 0, n: -1 };

export interface StreamRoutesOptions {
  queue: Queues;
  cursors: StreamCursors;
  clock: Clock;
  log: Log;
}

export function handleStream(
  options: StreamRoutesOptions,
): OperationHandler<typeof JOB_ROUTES.streamJob.path> {
  const { clock, cursors, log, queue } = options;
  return async (request, reply) => {
    const key = readJobKey(request.params);
    const after = readPosition(request.query['after'], 'after');
    const signal = abortWhenGone(reply.raw);
    const range = LIMITS.streamWaitMs;
    const waitMs = readInteger(request.query, 'wait', range) ?? range.default;
    if (wantsEvents(request)) {
      // When EventSource reconnects, it sends this ID to its original URL, which may contain `after`.
      const lastId = readPosition(request.headers['last-event-id'], 'Last-Event-ID');
      const from = lastId ?? after ?? START;
      return sendEvents(reply, { queue, log, key, from, signal });
    }
    // Without it, reading moves the cursor of the job, and a page of another site can make a browser read.
    if (!after && request.session) throw refuseParameter('after', NEEDED_IN_SESSIONS);
    const show = (page: StreamPage) => showPage(reply, page);
    const reading = { queue, cursors, clock, show, ...key, waitMs, signal };
    return after ? sendAfter(reply, after, reading) : sendNext(reply, reading);
  };
}

function showPage(reply: FastifyReply, page: StreamPage): Uint8Array[] {
  reply.header(STREAM_HEADERS.next, formatPosition(page.position));
  reply.header(STREAM_HEADERS.status, page.status);
  if (page.reset) reply.header(STREAM_HEADERS.reset, 'true');
  return joinAsArray(page.chunks);
}

const NEEDED_IN_SESSIONS =
  'is needed in the session of a browser; send after=0 to read from the start';

/** Longer than any client needs: comparing media types takes quadratic time. */
const MAX_ACCEPT_LENGTH = 1_000;

/** Returns false (JSON) if the client has no preference or accepts neither format. */
function wantsEvents({ raw }: FastifyRequest<JobRoute>): boolean {
  if ((raw.headers.accept?.length ?? 0) > MAX_ACCEPT_LENGTH) return false;
  const mediaTypes = [JSON_MEDIA_TYPE, EVENTS_MEDIA_TYPE];
  return new Negotiator(raw).mediaType(mediaTypes) === EVENTS_MEDIA_TYPE;
}

/** Returns `0` before the first chunk: the start of the attempt that is current at the next call. */
export function formatPosition({ attempt, n }: Position): string {
  return n < 0 ? '0' : `${attempt}.${n}`;
}

/** Undefined if absent. @throws ProblemError `invalid` */
function readPosition(text: string | string[] | undefined, name: string): Position | undefined {
  if (text === undefined) return undefined;
  if (text === '0') return START;
  const [, attempt, n] = /^([1-9]\d{0,8})\.(\d{1,9})$/.exec(String(text)) ?? [];
  if (attempt !== undefined && n !== undefined) return { attempt: Number(attempt), n: Number(n) };
  throw refuseParameter(name, 'must be 0 or <attempt>.<chunk number>, such as 1.41');
}
