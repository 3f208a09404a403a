// The port for other nodes: checks their secret and passes their requests to the same routes as the public
// port, marked as forwarded.
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { Clock } from '../../base/clock.ts';
import { FairTurns } from '../../base/fair-turns.ts';
import type { Log } from '../../base/log.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import { Connections } from '../limits/connections.ts';
import { Flows } from '../limits/flows.ts';
import { createListener } from '../listener.ts';
import type { Connect } from '../proxy/upgrade.ts';
import { markForwarded } from './forwarded.ts';
import { answerNodeCall, isNodeCall, type NodeCallsOptions } from './node-calls.ts';
import { hasNodeSecret } from './node-secret.ts';
import { type FindPodPort, serveTunnel } from './pod-tunnel.ts';

/** The client's head has at most its own bounds; these bytes are for the headers between nodes. */
const NODE_HEADER_BYTES = 4_096;
/** All nodes are one user of this port. */
const NODE_USER = 'nodes';

export interface NodeListenerOptions extends NodeCallsOptions {
  listen: { host: string; port: number };
  /** Any of them is accepted. */
  secrets: readonly string[];
  /** The routes of the public port. */
  routing: RequestListener;
  bounds: HttpBounds;
  maxNodeConnections: number;
  /** Default: no pod can be reached. */
  findPodPort?: FindPodPort | undefined;
  clock: Clock;
  log: Log;
  /** How long `close` waits for running responses before it breaks them, ms. */
  closeMs: number;
}

export class NodeListener {
  readonly #options: NodeListenerOptions;
  readonly #connections: Connections;
  readonly #server: Server;

  constructor(options: NodeListenerOptions) {
    const { clock, log, maxNodeConnections } = options;
    this.#options = options;
    const bounds = {
      ...options.bounds,
      maxHeaderBytes: options.bounds.maxHeaderBytes + NODE_HEADER_BYTES,
      ...{ maxConnections: maxNodeConnections, maxAddressConnections: maxNodeConnections },
      maxUserConnections: maxNodeConnections,
    };
    this.#connections = new Connections({ bounds, clock, log });
    const listening = {
      ...{ bounds, clock, connect: this.#connect },
      turns: new FairTurns(),
      findUser: this.#findUser,
      budget: new Flows({ ...bounds, clock }).clients,
    };
    this.#server = createListener(this.#serve, listening, this.#connections);
    // No answer: it would tell a stranger what listens here.
    this.#server.on('clientError', (_error, socket) => socket.destroy());
  }

  /** @throws the system's error for an invalid address */
  async start(): Promise<{ url: string }> {
    const { host, port } = this.#options.listen;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port }, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    const address = this.#server.address();
    const bound = typeof address === 'object' && address ? address.port : port;
    return { url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}` };
  }

  async close(): Promise<void> {
    const { clock, closeMs } = this.#options;
    const cancel = clock.after(closeMs, () => this.#connections.closeAll());
    // At once if the port was never opened.
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#connections.closeIdle();
    await closed;
    cancel();
    this.#connections.stop();
  }

  readonly #findUser = (request: IncomingMessage): string | undefined =>
    hasNodeSecret(request, this.#options.secrets) ? NODE_USER : undefined;

  readonly #connect: Connect = (request, socket, head) => {
    const { clock, findPodPort, log, secrets } = this.#options;
    socket.on('error', () => socket.destroy());
    if (!findPodPort || !hasNodeSecret(request, secrets)) socket.destroy();
    else void serveTunnel(request, head, { clock, findPodPort, log });
  };

  readonly #serve: RequestListener = (request, response) => {
    const { routing, secrets } = this.#options;
    if (!hasNodeSecret(request, secrets)) {
      response.writeHead(401, { connection: 'close', 'content-length': 0 }).end();
      return;
    }
    this.#connections.noteUser(request.socket, NODE_USER);
    if (isNodeCall(request)) {
      void answerNodeCall(request, response, this.#options);
      return;
    }
    markForwarded(request);
    routing(request, response);
  };
}
