// Handles requests to switch protocols, such as WebSocket. They pass the same checks as all
// requests. Once a worker has accepted, bytes are forwarded in both directions.
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../base/clock.ts';
import { http } from '../../base/net/node-http.ts';
import { ProblemError } from '../../wire/problem.ts';
import { endWithProblem } from '../http/problem-reply.ts';
import { announcesBody } from '../limits/exchanges.ts';
import { isBalancedTarget, readTokens } from './message-head.ts';

/** When one side has ended, the other has this long to receive what is left, ms. */
const CLOSE_MS = 10_000;
/** Most bytes of a client before the worker has accepted. */
const MAX_EARLY_BYTES = 65_536;

export interface UpgradeRequest {
  /** Protocol name from the client: `websocket`. */
  protocol: string;
  socket: Socket;
  /** Returns data received after the request's head; later data is left to the next reader. */
  takeEarly(): Buffer;
}

const upgradeRequests = new WeakMap<IncomingMessage, UpgradeRequest>();

/** Undefined without an upgrade. */
export function findUpgrade(request: IncomingMessage): UpgradeRequest | undefined {
  return upgradeRequests.get(request);
}

/**
 * For the server's `shouldUpgradeCallback`. The upgrade is ignored on other paths, and for HTTP/2,
 * which workers do not get.
 */
export function mayUpgrade(request: IncomingMessage): boolean {
  const { headers, url = '' } = request;
  if (!isBalancedTarget(url) || announcesBody(request)) return false;
  return !readTokens(headers.upgrade).has('h2c');
}

export type Connect = (request: IncomingMessage, stream: Duplex, head: Buffer) => void;

export interface UpgradeOptions {
  /** Called before anything else reads the socket, which is no longer HTTP. */
  detach: (socket: Socket) => void;
  /** Serves CONNECT. Default: it is refused. */
  connect?: Connect | undefined;
  clock: Clock;
}

/** Passes requests with an upgrade to the same listener as the others. */
export function serveUpgrades(
  server: Server,
  listener: RequestListener,
  { clock, connect = refuseConnect(clock), detach }: UpgradeOptions,
): void {
  server.on('upgrade', (request: IncomingMessage, _stream: Duplex, head: Buffer) => {
    const { headers, socket } = request;
    detach(socket);
    const response = new http.ServerResponse(request);
    // After this response, no other request can be read from the connection.
    response.shouldKeepAlive = false;
    socket.on('error', () => socket.destroy());
    try {
      response.assignSocket(socket);
    } catch {
      // The upgrade was sent before the previous request was answered.
      socket.destroy();
      return;
    }
    if (mayUpgrade(request)) {
      const takeEarly = readEarly(socket, head);
      upgradeRequests.set(request, { protocol: headers.upgrade ?? '', socket, takeEarly });
    }
    response.once('finish', () => {
      response.detachSocket(socket);
      if (response.statusCode !== 101) socket.destroySoon();
    });
    listener(request, response);
  });
  server.on('connect', (...call: Parameters<Connect>) => {
    detach(call[0].socket);
    connect(...call);
  });
}

function refuseConnect(clock: Clock): Connect {
  return (_request, stream) => {
    const detail = 'CONNECT is not supported: the platform does not proxy to other hosts';
    stream.on('error', () => stream.destroy());
    endWithProblem(stream, { problem: new ProblemError('malformed', detail), clock });
  };
}

/**
 * Only reading detects that a client disconnects. As elsewhere, a client that ends its side counts
 * as gone.
 */
function readEarly(socket: Socket, head: Buffer): () => Buffer {
  const pieces = [head];
  let bytes = head.length;
  const keep = (piece: Buffer) => {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes >= MAX_EARLY_BYTES) socket.pause();
  };
  const hangUp = () => socket.destroy();
  socket.on('data', keep).once('end', hangUp);
  return () => {
    socket.pause().off('data', keep).off('end', hangUp);
    return Buffer.concat(pieces);
  };
}

/**
 * The reader of the body answers `100 Continue`: after the key and the length were checked, or when
 * a worker can take the body.
 */
export function serveExpectations(server: Server, listener: RequestListener): void {
  server.on('checkContinue', listener);
}

export interface Tunnel {
  client: Socket;
  worker: Duplex;
  /** Data that the client has already sent. */
  head: Buffer;
  clock: Clock;
}

/** Resolves when both are closed: the end of one also ends the other. */
export async function joinTunnel({ client, clock, head, worker }: Tunnel): Promise<void> {
  let cancel: (() => void) | undefined;
  const limitEnd = () => {
    cancel ??= clock.after(CLOSE_MS, () => {
      client.destroy();
      worker.destroy();
    });
  };
  const closed = [client, worker].map((side) => {
    const other = side === client ? worker : client;
    side.on('error', () => side.destroy());
    side.once('end', limitEnd);
    return new Promise<void>((resolve) => {
      side.once('close', () => {
        limitEnd();
        other.end(() => other.destroy());
        resolve();
      });
    });
  });
  client.setTimeout(0);
  if (head.length > 0) worker.write(head);
  client.pipe(worker);
  worker.pipe(client);
  await Promise.all(closed);
  cancel?.();
}
