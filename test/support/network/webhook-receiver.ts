// A real HTTP server that receives webhooks, records them, and answers as the test says.
import {
  createServer,
  type IncomingHttpHeaders,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { verifyWebhook, WEBHOOK_HEADERS } from '../../../src/client.ts';
import type { JobRecord } from '../../../src/wire/job/job-records.ts';
import { until } from '../until.ts';

export interface Posted {
  path: string;
  body: string;
  delivery: string;
  endpoint: string;
  attempt: number;
  headers: IncomingHttpHeaders;
}

export class WebhookReceiver implements AsyncDisposable {
  readonly posted: Posted[] = [];
  readonly #server: Server;
  #answer: (response: ServerResponse) => void = (response) => response.end();
  /** Number of opened sockets. */
  connections = 0;

  private constructor() {
    this.#server = createServer(async (request, response) => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece);
      const header = (name: string) => String(request.headers[name]);
      this.posted.push({
        path: request.url ?? '',
        body: Buffer.concat(pieces).toString(),
        delivery: header(WEBHOOK_HEADERS.id),
        endpoint: header(WEBHOOK_HEADERS.endpoint),
        attempt: Number(header(WEBHOOK_HEADERS.attempt)),
        headers: request.headers,
      });
      this.#answer(response);
    });
    this.#server.on('connection', () => {
      this.connections += 1;
    });
  }

  static async start(): Promise<WebhookReceiver> {
    const receiver = new WebhookReceiver();
    await new Promise<void>((resolve) => receiver.#server.listen(0, '127.0.0.1', resolve));
    return receiver;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/done`;
  }

  /** Sets the answer of later requests. */
  answer(answer: (response: ServerResponse) => void): void {
    this.#answer = answer;
  }

  /** Resolves with the webhook of this number, from 1. */
  receive(number: number): Promise<Posted> {
    return until(() => this.posted[number - 1]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Returns the record. @throws WebhookRefusedError */
export function verifyPosted({ body, headers }: Posted, secret: string): Promise<JobRecord> {
  return verifyWebhook({ body, headers, secret });
}
