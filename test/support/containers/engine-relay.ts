// A relay in front of a Docker Engine, over TCP. It simulates other engines: one that ignores parts
// of requests, answers incompletely, or does not answer.
import { once } from 'node:events';
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { buffer } from 'node:stream/consumers';

export interface RelayRule {
  /** Returns the JSON body that the engine gets instead of the original. */
  rewrite?: (url: string, body: string) => string;
  /** Awaited before the engine gets the request. */
  before?: (url: string) => Promise<void>;
  /** `none`: the connection ends. `silent`: it never ends. `half`: it ends in the middle of the answer. */
  answer?: 'none' | 'silent' | 'half';
}

export class EngineRelay {
  readonly #server: Server;
  readonly #socketPath: string;
  rule: RelayRule = {};
  /** Requests so far, by method and path. */
  readonly received: string[] = [];

  private constructor(socketPath: string) {
    this.#socketPath = socketPath;
    this.#server = createServer((request, response) => {
      this.#pass(request, response).catch(() => response.destroy());
    });
  }

  /** `engine`: `unix:///path`. */
  static async start(engine: string): Promise<EngineRelay> {
    const relay = new EngineRelay(new URL(engine).pathname);
    relay.#server.listen(0, '127.0.0.1');
    await once(relay.#server, 'listening');
    return relay;
  }

  get host(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('it has no port');
    return `tcp://127.0.0.1:${address.port}`;
  }

  /** Ends open connections; accepts new ones. */
  cut(): void {
    this.#server.closeAllConnections();
  }

  async stop(): Promise<void> {
    this.#server.close();
    this.cut();
    await once(this.#server, 'close');
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { headers, method, url = '' } = request;
    this.received.push(`${method} ${url}`);
    const { answer, before, rewrite } = this.rule;
    const given = (await buffer(request)).toString();
    const body = rewrite ? rewrite(url, given) : given;
    if (answer === 'none') response.destroy();
    if (answer === 'none' || answer === 'silent') return;
    await before?.(url);
    const options = { socketPath: this.#socketPath, method, path: url };
    const asked = httpRequest({
      ...options,
      headers: { ...headers, 'content-length': Buffer.byteLength(body) },
    });
    asked.on('error', () => response.destroy());
    response.on('close', () => asked.destroy());
    asked.end(body);
    const [answered]: IncomingMessage[] = await once(asked, 'response');
    if (!answered) return;
    response.writeHead(answered.statusCode ?? 500, answered.headers);
    // An engine's event stream may be silent for long.
    response.flushHeaders();
    if (answer !== 'half') {
      answered.pipe(response);
      return;
    }
    const whole = await buffer(answered);
    response.write(whole.subarray(0, whole.length / 2), () => response.destroy());
  }
}
