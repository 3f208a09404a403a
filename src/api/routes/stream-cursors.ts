// The default cursors of streams: each chunk goes to one reader. A cursor moves when the response with
// the chunks is completely written; until then the job's other readers wait.
import type { FastifyReply } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Queues } from '../../queue/queues.ts';
import type { Position, StreamPage, StreamRequest } from '../../queue/reports/streams.ts';

export interface StreamCursorsOptions {
  queue: Queues;
  log: Log;
  clock: Clock;
}

type CursorRequest = Omit<StreamRequest, 'after'>;

/** All routes of the platform share one instance, so that a job has one cursor. */
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
   * if the caller has read it in this turn of the event loop.
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

  /** Returns false if the attempt ended during the read: its chunks must not be sent any more. */
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
