// The default cursors of streams: each chunk is handed to one reader. A cursor moves when the answer with
// the chunks was written whole; until then other readers of the job wait.
import type { FastifyReply } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Queue } from '../../queue/queue.ts';
import type { Position, StreamPage, StreamRequest } from '../../queue/streams.ts';

export interface StreamCursorsOptions {
  queue: Queue;
  log: Log;
  clock: Clock;
}

type CursorRequest = Omit<StreamRequest, 'after'>;

/** One for all routes of the platform: the cursor of a job is the same on each of them. */
export class StreamCursors {
  readonly #options: StreamCursorsOptions;
  /** By job: resolves when the answer that holds the cursor was written or broken off. */
  readonly #held = new Map<string, Promise<void>>();

  constructor(options: StreamCursorsOptions) {
    this.#options = options;
  }

  /**
   * The chunks that were not handed out yet, to be sent with `reply`. An answer that breaks off moves
   * nothing: the same chunks come again. `read`: the page, if it was read in this turn of the event loop.
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
      // A client that has gone gets nothing, and the end of its answer could not be waited for.
      if (page.chunks.length === 0 || reply.raw.closed) return page;
      // Another reader may have got these chunks while this one waited for some.
      if (this.#held.has(name)) continue;
      const letGo = this.#hold(name, reply, { ...request, position: page.position });
      if (!page.needsMark || (await this.#mark(request, page, letGo))) return page;
    }
  }

  /** False if the chunks may not be sent any more: the attempt ended while they were read. */
  async #mark(key: CursorRequest, { position }: StreamPage, letGo: () => void): Promise<boolean> {
    const { endpointId, id } = key;
    let isMarked = false;
    try {
      isMarked = await this.#options.queue.streams.handingOut({ endpointId, id }, position);
      return isMarked;
    } finally {
      if (!isMarked) letGo();
    }
  }

  /** @returns what gives the cursor back before anything was sent */
  #hold(
    name: string,
    reply: FastifyReply,
    chunks: CursorRequest & { position: Position },
  ): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#held.set(name, promise);
    const letGo = () => {
      reply.raw.off('close', end);
      this.#held.delete(name);
      resolve();
    };
    // `close` follows `finish` too, and comes alone when the answer broke off.
    const end = async () => {
      // Another status: the budget of bytes in flight was full, and the page was not sent.
      const isSent = reply.raw.writableFinished && reply.raw.statusCode === 200;
      if (isSent) await this.#move(chunks);
      letGo();
    };
    reply.raw.once('close', end);
    return letGo;
  }

  async #move({ endpointId, id, position }: CursorRequest & { position: Position }): Promise<void> {
    const { log, queue } = this.#options;
    try {
      await queue.streams.handedOut({ endpointId, id }, position);
    } catch (error) {
      log.warn({ err: error, job: id }, 'stream cursor not moved; chunks will come again');
    }
  }
}
