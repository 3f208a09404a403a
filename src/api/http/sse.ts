// Sends a job's chunks as server-sent events, from a position to the job's end, at the client's
// pace.
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { Log } from '../../base/log.ts';
import { loadInTurn, ownTurn } from '../../base/slices.ts';
import type { Queues } from '../../queue/queues.ts';
import type { Position, StreamPage } from '../../queue/reports/streams.ts';
import { ProblemError } from '../../wire/problem.ts';
import { STREAM_HEADERS } from '../../wire/routes/routes.ts';
import type { FlowRequest, Loaded } from '../limits/flows.ts';
import { countBytes } from '../routes/stream-answers.ts';
import { cutSlices, joinSmall, takeOver } from './byte-reply.ts';

/** Names the charset, because clients such as python-requests otherwise assume Latin-1. */
export const EVENTS_MEDIA_TYPE = 'text/event-stream; charset=utf-8';

/** A comment is sent after this time without a chunk, because proxies close silent connections. */
export const KEEP_ALIVE_MS = 15_000;
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
 * Sends one event for each chunk, with its position as `id`. Sends `reset` when a new attempt has
 * begun. Ends with `done` and the final record, or with `expired` if the job was removed; without
 * either, the platform has stopped.
 * @throws ProblemError for a missing job or an invalid position, before anything is written
 */
export async function sendEvents(
  reply: FastifyReply,
  request: EventsRequest,
): Promise<FastifyReply> {
  const { from, key, log, queue } = request;
  const status = await queue.streams.readStatus({ ...key, after: from });
  const raw = takeOver(reply);
  raw.writeHead(200, {
    'content-type': EVENTS_MEDIA_TYPE,
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    [STREAM_HEADERS.status]: status,
  });
  raw.flushHeaders();
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
    await ownTurn();
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
    load: () => loadInTurn(() => queue.streams.read(reading), countBytes),
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
