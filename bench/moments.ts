// Receives the times of events from handlers, by the machine's monotonic clock.
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';

interface Moment {
  job: string;
  event: 'began' | 'stopped';
  attempt: number;
  at: string;
}

export class Moments {
  readonly #server: Server;
  readonly #seen: Moment[] = [];
  readonly #waiting = new Set<() => void>();
  #url = '';

  private constructor() {
    this.#server = createServer(async (incoming, answer) => {
      const pieces: Buffer[] = [];
      for await (const piece of incoming) pieces.push(piece);
      this.#seen.push(JSON.parse(Buffer.concat(pieces).toString()));
      answer.end();
      for (const wake of this.#waiting) wake();
    });
  }

  static async listen(): Promise<Moments> {
    const moments = new Moments();
    moments.#server.listen(0, '127.0.0.1');
    await once(moments.#server, 'listening');
    const address = moments.#server.address();
    if (typeof address !== 'object' || address === null) throw new Error('no address');
    moments.#url = `http://127.0.0.1:${address.port}`;
    return moments;
  }

  /** URL to which handlers post. */
  get url(): string {
    return this.#url;
  }

  /** Returns the time of the event, by `process.hrtime`. */
  async find(wanted: Omit<Moment, 'at'>): Promise<bigint> {
    for (;;) {
      const found = this.#seen.find(
        ({ job, event, attempt }) =>
          job === wanted.job && event === wanted.event && attempt === wanted.attempt,
      );
      if (found) return BigInt(found.at);
      await new Promise<void>((resolve) => {
        const wake = () => {
          this.#waiting.delete(wake);
          resolve();
        };
        this.#waiting.add(wake);
      });
    }
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
