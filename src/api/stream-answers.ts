// Sends one response of a stream. Measures the waiting chunks first, and reads them when the budget
// of bytes in flight permits.
import type { FastifyReply } from 'fastify';
import type { Clock } from '../base/clock.ts';
import { loadInTurn } from '../base/slices.ts';
import type { Queues } from '../queue/queues.ts';
import type { Position, StreamPage, StreamRequest } from '../queue/reports/streams.ts';
import { LIMITS } from '../wire/job/job.ts';
import { JSON_MEDIA_TYPE, sendLoaded } from './http/byte-reply.ts';
import type { StreamCursors } from './routes/stream-cursors.ts';

/** Bytes of a page that is read only to learn whether more chunks follow. */
const PEEK_BYTES = 32_768;

type Reading = Omit<StreamRequest, 'after' | 'maxBytes'>;

export interface StreamAnswer extends Reading {
  queue: Queues;
  cursors: StreamCursors;
  clock: Clock;
  /** Returns the response's JSON. */
  show: (page: StreamPage) => Uint8Array[];
}

/** Sends the chunks after the position `after`; does not move the default cursor. @throws ProblemError */
export function sendAfter(
  reply: FastifyReply,
  after: Position,
  answer: StreamAnswer,
): Promise<FastifyReply> {
  const { queue } = answer;
  return send(
    reply,
    answer,
    after,
    async (request, peeked) => peeked ?? (await queue.streams.read({ ...request, after })),
  );
}

/**
 * Sends the chunks after the default cursor, and moves the cursor behind them. @throws ProblemError
 */
export function sendNext(reply: FastifyReply, answer: StreamAnswer): Promise<FastifyReply> {
  const { cursors } = answer;
  return send(reply, answer, undefined, (request, peeked) =>
    cursors.readNext(reply, request, peeked),
  );
}

function send(
  reply: FastifyReply,
  { clock, endpointId, id, queue, show, signal, waitMs }: StreamAnswer,
  after: Position | undefined,
  read: (request: Omit<StreamRequest, 'after'>, peeked?: StreamPage) => Promise<StreamPage>,
): Promise<FastifyReply> {
  const until = clock.now() + waitMs;
  const key = { endpointId, id };
  const maxBytes = LIMITS.streamAnswerBytes;
  let whole: StreamPage | undefined;
  return sendLoaded(reply, {
    async measure() {
      const splitBytes = await queue.streams.splitBytes(key);
      if (splitBytes > 0) return Math.max(maxBytes, splitBytes);
      const peek = { ...key, after, waitMs, maxBytes: PEEK_BYTES, signal };
      const page = await loadInTurn(() => queue.streams.read(peek), countBytes);
      const bytes = countBytes(page);
      // A larger page would be in memory while it waits for the budget.
      if (!page.more && bytes <= PEEK_BYTES) whole = page;
      return page.more ? maxBytes : bytes;
    },
    async load() {
      const peeked = whole;
      whole = undefined;
      const leftMs = Math.max(0, until - clock.now());
      const page = await read({ ...key, waitMs: leftMs, maxBytes, signal }, peeked);
      return { mediaType: JSON_MEDIA_TYPE, pieces: show(page) };
    },
  });
}

export function countBytes({ chunks }: StreamPage): number {
  return chunks.reduce((sum, chunk) => sum + chunk.length, 0);
}
