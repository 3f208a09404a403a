// A proxy that falsifies answers: between clients and a platform, and between the platform and the receiver of webhooks.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';

interface Asked {
  method: string;
  /** With the query. */
  path: string;
  headers: Record<string, string>;
  body: string;
}

export interface Answered {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/** Answers a request. `forward` passes it on, with changes if given. */
export type Lie = (
  asked: Asked,
  forward: (changed?: Partial<Asked>) => Promise<Answered>,
) => Promise<Answered>;

/** The proxy passes on these headers only. */
const HEADERS = /^(authorization|content-type|accept|last-event-id|millrace-.*|webhook-.*)$/;
const WEBHOOKS = '/webhooks';

export class Liar implements AsyncDisposable {
  readonly #server: Server;
  readonly #platformUrl: string;
  #receiverUrl = '';

  private constructor(platformUrl: string, lie: Lie) {
    this.#platformUrl = platformUrl;
    this.#server = createServer((request, response) => {
      // The client has left, or the platform does not answer.
      this.#pass(request, response, lie).catch(() => response.destroy());
    });
  }

  static async start(platformUrl: string, lie: Lie): Promise<Liar> {
    const liar = new Liar(platformUrl, lie);
    liar.#server.listen(0, '127.0.0.1');
    await once(liar.#server, 'listening');
    return liar;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the liar has no port');
    return `http://127.0.0.1:${address.port}`;
  }

  /** @returns the URL where the platform sends webhooks for this receiver */
  passWebhooks(receiverUrl: string): string {
    this.#receiverUrl = receiverUrl;
    return this.url + WEBHOOKS;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const hasClosed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await hasClosed;
  }

  async #pass(request: IncomingMessage, response: ServerResponse, lie: Lie): Promise<void> {
    const asked: Asked = {
      ...{ method: request.method ?? 'GET', path: request.url ?? '' },
      headers: pickHeaders(Object.entries(request.headers)),
      body: Buffer.concat(await Array.fromAsync(request)).toString(),
    };
    const { body, headers, status } = await lie(asked, (changed) => {
      return this.#forward({ ...asked, ...changed });
    });
    response.writeHead(status, headers).end(body);
  }

  async #forward({ body, headers, method, path }: Asked): Promise<Answered> {
    const isWebhook = path.startsWith(WEBHOOKS);
    const url = isWebhook
      ? this.#receiverUrl + path.slice(WEBHOOKS.length)
      : this.#platformUrl + path;
    const answer = await fetch(url, { method, headers, ...(body !== '' && { body }) });
    const text = await answer.text();
    return { status: answer.status, headers: pickHeaders(answer.headers), body: text };
  }
}

function pickHeaders(headers: Iterable<[string, string | string[] | undefined]>) {
  const kept = [...headers].filter(([name]) => HEADERS.test(name));
  return Object.fromEntries(kept.map(([name, value]) => [name, String(value)]));
}
