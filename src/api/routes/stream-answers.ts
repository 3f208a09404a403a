// Sends one response of a stream, and keeps the default cursors of streams: each chunk goes to one reader. Measures
// the waiting chunks first, and reads them when the budget of bytes in flight permits.
import type { FastifyReply } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { loadPaced } from '../../base/slices.ts';
import type { Queues } from '../../queue/queues.ts';
import type { Position, StreamPage, StreamRequest } from '../../queue/reports/streams.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { JSON_MEDIA_TYPE, sendLoaded } from '../http/byte-reply.ts';

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
      const page = await loadPaced(() => queue.streams.read(peek), countBytes);
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

export interface StreamCursorsOptions {
  queue: Queues;
  log: Log;
  clock: Clock;
}

type CursorRequest = Omit<StreamRequest, 'after'>;

/**
 * The default cursors of streams. A cursor moves when the response with the chunks is completely written; until then
 * the job's other readers wait. All routes of the platform share one instance, so that a job has one cursor.
 */
export class StreamCursors {
  readonly #options: StreamCursorsOptions;
  /** By job: resolves when the response that holds the cursor was written or broken off. */
  readonly #held = new Map<string, Promise<void>>();

  constructor(options: StreamCursorsOptions) {
    this.#options = options;
  }

  /**
   * Returns the chunks that no reader has received yet; the caller sends them with `reply`. If that
   * response breaks off, the cursor stays and the next reader gets the same chunks. `read`: the page,
   * if the caller has read it in this iteration of the event loop.
   * @throws ProblemError `not_found`
   */
  async readNext(
    reply: FastifyReply,
    request: CursorRequest,
    read?: StreamPage,
  ): Promise<StreamPage> {
    const { clock, queue } = this.#options;
    const name = `${request.endpointId}/${request.id}`;
    const until = clock.now() + request.waitMs;
    for (let known = read; ; known = undefined) {
      if (this.#held.has(name)) {
        known = undefined;
        await this.#held.get(name);
      }
      const waitMs = Math.max(0, until - clock.now());
      const page = known ?? (await queue.streams.read({ ...request, waitMs, after: undefined }));
      // The client has disconnected: its response will emit no further 'close' to wait for.
      if (page.chunks.length === 0 || reply.raw.closed) return page;
      // Another reader may have received these chunks during the wait.
      if (this.#held.has(name)) continue;
      const release = this.#hold(name, reply, { ...request, position: page.position });
      if (!page.needsMark || (await this.#mark(request, page, release))) return page;
    }
  }

  /** Returns false if the attempt ended during the read: its chunks must no longer be sent. */
  async #mark(key: CursorRequest, { position }: StreamPage, release: () => void): Promise<boolean> {
    const { endpointId, id } = key;
    let isMarked = false;
    try {
      isMarked = await this.#options.queue.streams.noteSending({ endpointId, id }, position);
      return isMarked;
    } finally {
      if (!isMarked) release();
    }
  }

  /** @returns a function that releases the cursor before anything was sent */
  #hold(
    name: string,
    reply: FastifyReply,
    chunks: CursorRequest & { position: Position },
  ): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#held.set(name, promise);
    const release = () => {
      reply.raw.off('close', end);
      this.#held.delete(name);
      resolve();
    };
    // 'close' follows 'finish'; if the response broke off, 'close' comes alone.
    const end = async () => {
      // Any other status: the budget of bytes in flight was full and the page was not sent.
      const isSent = reply.raw.writableFinished && reply.raw.statusCode === 200;
      if (isSent) await this.#move(chunks);
      release();
    };
    reply.raw.once('close', end);
    return release;
  }

  async #move({ endpointId, id, position }: CursorRequest & { position: Position }): Promise<void> {
    const { log, queue } = this.#options;
    try {
      await queue.streams.noteSent({ endpointId, id }, position);
    } catch (error) {
      log.warn(
        { err: error, job: id },
        'moving the stream cursor failed; its chunks will be sent again',
      );
    }
  }
}
