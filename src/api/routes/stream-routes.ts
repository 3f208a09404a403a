// Serves GET /stream: a job's chunks, as one JSON array per call, or as server-sent events from a position to the
// job's end, at the client's pace.
import type { FastifyReply, FastifyRequest } from 'fastify';
import Negotiator from 'negotiator';
import type { Log } from '../../base/log.ts';
import { loadPaced, yieldToLoop } from '../../base/slices.ts';
import type { Queues } from '../../queue/queues.ts';
import type { Position, StreamPage } from '../../queue/reports/streams.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import { type JOB_ROUTES, STREAM_HEADERS } from '../../wire/routes/routes.ts';
import type { ApiContext } from '../context.ts';
import { requireScope } from '../http/auth.ts';
import {
  beginEvents,
  EVENTS_MEDIA_TYPE,
  JSON_MEDIA_TYPE,
  joinAsArray,
  KEEP_ALIVE_MS,
  loadInFlight,
  writeSlices,
} from '../http/byte-reply.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { readInteger, refuseParameter } from '../http/requests.ts';
import { cancelForGone, type JobRoute, readCancelOnDisconnect, readJobKey } from './job-routes.ts';
import type { OperationHandler } from './operation-routes.ts';
import { countBytes, sendAfter, sendNext } from './stream-answers.ts';

/** Before the first chunk of the current attempt. */
const START: Position = { attempt: 0, n: -1 };

export function handleStream({
  clock,
  cursors,
  log,
  queue,
}: Pick<ApiContext, 'clock' | 'cursors' | 'log' | 'queue'>): OperationHandler<
  typeof JOB_ROUTES.streamJob.path
> {
  return async (request, reply) => {
    const key = readJobKey(request.params);
    const after = readPosition(request.query['after'], 'after');
    const signal = abortWhenGone(reply.raw);
    if (readCancelOnDisconnect(request.query)) {
      requireScope(request.holder, 'jobs:write', key.endpointId);
      // A page of another site can make a browser open and close a stream.
      if (request.session) throw refuseParameter('cancelOnDisconnect', 'is not for browsers');
      signal.addEventListener('abort', () => void cancelForGone(queue, key), { once: true });
    }
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

/** Bytes of chunks fetched at a time: the most that a stalled client can hold in memory. */
const PAGE_BYTES = 1_048_576;
/** Reconnection time for clients when the platform stops, ms. */
const RECONNECT_MS = 2_000;

export interface EventsRequest {
  queue: Queues;
  log: Log;
  key: { endpointId: string; id: string };
  /** Events begin after this position. The default cursor is neither read nor moved. */
  from: Position;
  /** Aborts when the client disconnects. */
  signal: AbortSignal;
}

/**
 * Sends one event for each chunk, with its position as `id`. Sends `reset` when a new attempt has begun. Ends with
 * `done` and the final record, or with `expired` if the job was removed; without either, the platform has stopped.
 * @throws ProblemError for a missing job or an invalid position, before anything is written
 */
async function sendEvents(reply: FastifyReply, request: EventsRequest): Promise<FastifyReply> {
  const { from, key, log, queue } = request;
  const status = await queue.streams.readStatus({ ...key, after: from });
  const raw = beginEvents(reply, { [STREAM_HEADERS.status]: status });
  try {
    await sendPages(reply, request);
  } catch (error) {
    if (isGone(error)) {
      raw.write('event: expired\ndata: {}\n\n');
    } else {
      log.error({ err: error, job: key.id }, 'event stream broken off; the client will reconnect');
      // The status line is already sent: only a broken connection can indicate the failure.
      raw.destroy();
    }
  }
  raw.end();
  return reply;
}

async function sendPages(reply: FastifyReply, request: EventsRequest): Promise<void> {
  const { raw } = reply;
  const { from, queue, signal } = request;
  let after = from;
  for (let isFirst = true; !signal.aborted; isFirst = false) {
    // With a fast client the loop never waits otherwise, and reading pages would block the event loop.
    await yieldToLoop();
    const page = await sendPage(reply, request, { after, waitMs: isFirst ? 0 : KEEP_ALIVE_MS });
    if (!page) return;
    if (page.isComplete) return sendDone(reply, request);
    if (queue.isClosingAt(request.key.endpointId)) {
      raw.write(`retry: ${RECONNECT_MS}\n\n`);
      return;
    }
    if (page.isEmpty && !isFirst) raw.write(': still here\n\n');
    after = page.position;
  }
}

/** A page counts as in flight while it is written. Undefined if the client has disconnected. */
async function sendPage(
  reply: FastifyReply,
  { key, queue, signal }: EventsRequest,
  from: { after: Position; waitMs: number },
): Promise<{ isComplete: boolean; isEmpty: boolean; position: Position } | undefined> {
  const written = { bytes: 0 };
  const reading = { ...key, ...from, wakeOnReset: true, maxBytes: PAGE_BYTES, signal } as const;
  const loaded = await loadInFlight(reply, {
    signal: () => signal,
    written,
    sizeOf: countBytes,
    measure: () => queue.streams.splitBytes(key),
    load: () => loadPaced(() => queue.streams.read(reading), countBytes),
  });
  if (!loaded) return undefined;
  const { claim, value: page } = loaded;
  const { chunks, complete: isComplete, position, reset } = page;
  try {
    if (reset) reply.raw.write(`event: reset\ndata: {"attempt":${position.attempt}}\n\n`);
    await writeSlices(reply.raw, writeEvents(page), { signal, written });
  } finally {
    claim.release();
  }
  return { isComplete, isEmpty: chunks.length === 0 && !reset, position };
}

function sumBytes(pieces: readonly Uint8Array[]): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}

const END_OF_EVENT = Buffer.from('\n\n');

function* writeEvents({ chunks, position }: StreamPage): Generator<Uint8Array> {
  const firstNumber = position.n - chunks.length + 1;
  for (const [index, chunk] of chunks.entries()) {
    yield Buffer.from(`id: ${position.attempt}.${firstNumber + index}\ndata: `);
    yield onOneLine(chunk);
    yield END_OF_EVENT;
  }
}

async function sendDone(reply: FastifyReply, { key, queue, signal }: EventsRequest): Promise<void> {
  const { raw } = reply;
  const written = { bytes: 0 };
  const loaded = await loadInFlight(reply, {
    signal: () => signal,
    written,
    sizeOf: sumBytes,
    measure: () => queue.jobs.recordBytes(key),
    load: async () => (await queue.jobs.record(key)).pieces,
  });
  if (!loaded) return;
  try {
    raw.write('event: done\ndata: ');
    await writeSlices(raw, loaded.value.map(onOneLine), { signal, written });
    raw.write('\n\n');
  } finally {
    loaded.claim.release();
  }
}

/** A line break in JSON is only white space, but would end the event's line. */
function onOneLine(json: Uint8Array): Uint8Array {
  if (!json.includes(0x0a) && !json.includes(0x0d)) return json;
  return json.map((byte) => (byte === 0x0a || byte === 0x0d ? 0x20 : byte));
}

function isGone(error: unknown): boolean {
  return error instanceof ProblemError && error.code === 'not_found';
}
