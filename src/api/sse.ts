// A job's chunks as server-sent events, from a position to the job's end, at the client's pace.
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setImmediate as letOthersRun } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import type { Log } from '../base/log.ts';
import type { Queue } from '../queue/queue.ts';
import type { Position, StreamPage } from '../queue/streams.ts';
import { ProblemError } from '../wire/problem.ts';
import { STREAM_HEADERS } from '../wire/routes.ts';
import { joinSmall, takeOver } from './byte-reply.ts';

/** A comment goes out after so long without a chunk: proxies cut what is silent. */
const KEEP_ALIVE_MS = 15_000;
/** Chunks fetched at a time: what a client that stops reading can hold in memory. */
const PAGE_BYTES = 1_048_576;
/** What a client is told to wait before it comes back, when the platform stops. */
const RECONNECT_MS = 2_000;

export interface EventsRequest {
  queue: Queue;
  log: Log;
  key: { endpointId: string; id: string };
  /** Events begin behind it. The default cursor is neither read nor moved. */
  from: Position;
  /** Aborts when the client is gone. */
  signal: AbortSignal;
}

/**
 * One event a chunk, `id` its position; `reset` when a new attempt has begun; at last `done` with
 * the final record, or `expired` when the job was removed. Without either the platform stopped.
 * @throws ProblemError when there is no such job or position: nothing is written then
 */
export async function sendEvents(
  reply: FastifyReply,
  request: EventsRequest,
): Promise<FastifyReply> {
  const { key, log, queue, signal } = request;
  const first = await queue.streams.read({
    ...key,
    after: request.from,
    waitMs: 0,
    maxBytes: PAGE_BYTES,
    signal,
  });
  const raw = takeOver(reply);
  raw.writeHead(200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    [STREAM_HEADERS.status]: first.status,
  });
  raw.flushHeaders();
  try {
    await sendPages(raw, first, request);
  } catch (error) {
    if (isGone(error)) {
      raw.write('event: expired\ndata: {}\n\n');
    } else {
      log.error({ err: error, job: key.id }, 'event stream broken off; the client will come back');
      // The status line is out: a cut connection is all that can still tell of a failure.
      raw.destroy();
    }
  }
  raw.end();
  return reply;
}

async function sendPages(
  raw: ServerResponse,
  first: StreamPage,
  { key, queue, signal }: EventsRequest,
): Promise<void> {
  let page = first;
  for (let isFirst = true; !signal.aborted; isFirst = false) {
    if (page.reset) raw.write(`event: reset\ndata: {"attempt":${page.position.attempt}}\n\n`);
    await sendChunks(raw, page, signal);
    if (page.complete) return sendDone(raw, await queue.jobs.record(key));
    if (queue.isClosing) {
      raw.write(`retry: ${RECONNECT_MS}\n\n`);
      return;
    }
    if (page.chunks.length === 0 && !page.reset && !isFirst) raw.write(': still here\n\n');
    // To a fast client on a fast line nothing else here would ever wait.
    await letOthersRun();
    page = await queue.streams.read({
      ...key,
      after: page.position,
      waitMs: KEEP_ALIVE_MS,
      maxBytes: PAGE_BYTES,
      signal,
    });
  }
}

async function sendChunks(
  raw: ServerResponse,
  page: StreamPage,
  signal: AbortSignal,
): Promise<void> {
  for (const bytes of joinSmall(writeEvents(page))) {
    if (signal.aborted) return;
    if (!raw.write(bytes)) await drained(raw, signal);
  }
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

function sendDone(raw: ServerResponse, { body }: { body: Uint8Array }): void {
  raw.write('event: done\ndata: ');
  raw.write(onOneLine(body));
  raw.write('\n\n');
}

/** A line break inside JSON is white space, but it would end the event's line. */
function onOneLine(json: Uint8Array): Uint8Array {
  if (!json.includes(0x0a) && !json.includes(0x0d)) return json;
  return json.map((byte) => (byte === 0x0a || byte === 0x0d ? 0x20 : byte));
}

async function drained(raw: ServerResponse, signal: AbortSignal): Promise<void> {
  try {
    await once(raw, 'drain', { signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

function isGone(error: unknown): boolean {
  return error instanceof ProblemError && error.code === 'not_found';
}
