// The default cursors of streams: what they give next, and their move when an answer was written.
import type { FastifyReply } from 'fastify';
import type { Log } from '../base/log.ts';
import type { Queue } from '../queue/queue.ts';
import type { Position, StreamPage, StreamRequest } from '../queue/streams.ts';

export interface StreamCursorsOptions {
  queue: Queue;
  log: Log;
}

/** One for all routes: a read that follows a move at once waits for it. */
export class StreamCursors {
  readonly #options: StreamCursorsOptions;
  readonly #moving = new Map<string, Promise<void>>();

  constructor(options: StreamCursorsOptions) {
    this.#options = options;
  }

  /**
   * The chunks that were not handed out yet, to be sent with `reply`. An answer that breaks off moves
   * nothing: the same chunks come again. @throws ProblemError `not_found`
   */
  async readNext(reply: FastifyReply, request: Omit<StreamRequest, 'after'>): Promise<StreamPage> {
    const name = `${request.endpointId}/${request.id}`;
    await this.#moving.get(name);
    const page = await this.#options.queue.streams.read({ ...request, after: undefined });
    if (page.chunks.length > 0) {
      reply.raw.once('finish', () => {
        // The page was not sent: the budget of bytes in flight was full.
        if (reply.raw.statusCode !== 200) return;
        const moved = this.#move(request, page.position).finally(() => {
          if (this.#moving.get(name) === moved) this.#moving.delete(name);
        });
        this.#moving.set(name, moved);
      });
    }
    return page;
  }

  async #move(
    { endpointId, id }: { endpointId: string; id: string },
    position: Position,
  ): Promise<void> {
    const { log, queue } = this.#options;
    try {
      await queue.streams.handedOut({ endpointId, id }, position);
    } catch (error) {
      log.warn({ err: error, job: id }, 'stream cursor not moved; chunks will come again');
    }
  }
}
