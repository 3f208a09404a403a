// The port for other nodes: checks their secret, answers their calls (POST /node/<name>), connects them to ports of this
// machine's pods (CONNECT <pod>:<port>), and passes their other requests to the same routes as the public port, marked as
// forwarded.
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { FairScheduler } from '../../base/fair-scheduler.ts';
import type { Log } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import { markForwarded } from '../http/forwarded.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import { Connections } from '../limits/connections.ts';
import { sendContinue } from '../limits/exchanges.ts';
import { Flows } from '../limits/flows.ts';
import { createListener } from '../listener.ts';
import { type Connect, joinTunnel } from '../proxy/upgrade.ts';
import { CALL_PATH, CONNECT_MS, hasNodeSecret, MAX_CALL_BYTES, PING } from './node-client.ts';

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
      maxConnections: maxNodeConnections,
      maxAddressConnections: maxNodeConnections,
      maxUserConnections: maxNodeConnections,
    };
    this.#connections = new Connections({ bounds, clock, log });
    const listening = {
      bounds,
      clock,
      connect: this.#connect,
      scheduler: new FairScheduler(),
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

interface NodeCallsOptions {
  /** Default: every call is unknown. */
  onCall?: ((name: string, body: unknown) => Promise<unknown>) | undefined;
  log: Log;
}

function isNodeCall({ url = '' }: IncomingMessage): boolean {
  return url.startsWith(CALL_PATH);
}

/** Always answers. The caller has checked the secret. */
async function answerNodeCall(
  request: IncomingMessage,
  response: ServerResponse,
  { log, onCall }: NodeCallsOptions,
): Promise<void> {
  const name = decodeName(request.url ?? '');
  try {
    if (request.method !== 'POST') throw new ProblemError('method_not_allowed', 'use POST');
    const body = await readCall(request);
    if (name === PING) return send(response, 200, {});
    if (!onCall) throw new ProblemError('not_found', `call ${name} not found`);
    send(response, 200, (await onCall(name, body)) ?? null);
  } catch (error) {
    if (error instanceof ProblemError) {
      send(response, error.status, error.toProblem());
      return;
    }
    if (!request.destroyed) log.error({ err: error, call: name }, 'call of another node failed');
    send(response, 500, { code: 'internal' });
  }
}

/** @throws ProblemError `payload_too_large`, `malformed` */
async function readCall(request: IncomingMessage): Promise<unknown> {
  sendContinue(request);
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes > MAX_CALL_BYTES) {
      throw new ProblemError('payload_too_large', `a call has at most ${MAX_CALL_BYTES} bytes`);
    }
  }
  try {
    return JSON.parse(Buffer.concat(pieces).toString());
  } catch {
    throw new ProblemError('malformed', 'the call is not JSON');
  }
}

function decodeName(url: string): string {
  try {
    return decodeURIComponent(url.slice(CALL_PATH.length));
  } catch {
    return '';
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  if (response.destroyed) return;
  const json = Buffer.from(JSON.stringify(body));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': json.length });
  response.end(json);
}

/** Undefined if no container of the pod has the port: other ports of the machine cannot be reached. */
export type FindPodPort = (
  podId: string,
  port: number,
) => Promise<{ host: string; port: number } | undefined>;

interface TunnelServer {
  findPodPort: FindPodPort;
  clock: Clock;
  log: Log;
}

/** Connects another node to a port of a pod, which only this machine can reach. Never rejects. */
async function serveTunnel(
  request: IncomingMessage,
  head: Buffer,
  { clock, findPodPort, log }: TunnelServer,
): Promise<void> {
  const client = request.socket;
  const refuse = (status: string) => client.end(`HTTP/1.1 ${status}\r\ncontent-length: 0\r\n\r\n`);
  const [, podId = '', port = ''] = /^([^:]+):(\d{1,5})$/.exec(request.url ?? '') ?? [];
  try {
    const address = await findPodPort(podId, Number(port));
    if (client.destroyed) return;
    if (!address) {
      refuse('404 Not Found');
      return;
    }
    const worker = await dial(address);
    // Its `close` has passed, so it would not end the connection to the pod.
    if (client.destroyed) {
      worker.destroy();
      return;
    }
    client.write('HTTP/1.1 200 OK\r\n\r\n');
    await joinTunnel({ client, worker, head, clock });
  } catch (error) {
    log.debug({ err: error, pod: podId }, 'connecting to a pod for another node failed');
    refuse('502 Bad Gateway');
  }
}

function dial({ host, port }: { host: string; port: number }): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true, timeout: CONNECT_MS });
    socket.once('timeout', () => socket.destroy(new Error(`no connection in ${CONNECT_MS} ms`)));
    socket.once('error', reject);
    socket.once('connect', () => {
      socket
        .setTimeout(0)
        .off('error', reject)
        .on('error', () => socket.destroy());
      resolve(socket);
    });
  });
}
