// Requests for another protocol on their connection, WebSocket above all: they take the way of every
// request, through the same checks; once a worker has agreed, bytes go to and fro unread.
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../base/clock.ts';
import { http } from '../../base/node-http.ts';
import { ProblemError } from '../../wire/problem.ts';
import { endWithProblem } from '../http/problem-reply.ts';
import { readTokens } from './headers.ts';
import { isBalancedTarget } from './path.ts';

/** When one side has ended, the other gets so long to take what was still sent to it. */
const CLOSE_MS = 10_000;
/** Of what a client sends before the worker has agreed. */
const MAX_EARLY_BYTES = 65_536;

export interface UpgradeRequest {
  /** As the client names it: `websocket`. */
  protocol: string;
  socket: Socket;
  /** Gives what has come behind the request's head, and leaves the rest to whoever reads on. */
  takeEarly(): Buffer;
}

const upgradeRequests = new WeakMap<IncomingMessage, UpgradeRequest>();

/** Undefined for one that stays with HTTP. */
export function findUpgrade(request: IncomingMessage): UpgradeRequest | undefined {
  return upgradeRequests.get(request);
}

/**
 * For the server's `shouldUpgradeCallback`. Elsewhere, and for HTTP/2, which workers are not spoken to
 * in, the wish is passed over, as it may be.
 */
export function mayUpgrade({ headers, url = '' }: IncomingMessage): boolean {
  const hasBody =
    headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
  return isBalancedTarget(url) && !hasBody && !readTokens(headers.upgrade).has('h2c');
}

/** Leads requests that would leave HTTP to the same listener as the others. */
export function serveUpgrades(server: Server, listener: RequestListener, clock: Clock): void {
  server.on('upgrade', (request: IncomingMessage, _stream: Duplex, head: Buffer) => {
    const { headers, socket } = request;
    const response = new http.ServerResponse(request);
    // Whatever the answer is: no other request can be read from this connection.
    response.shouldKeepAlive = false;
    socket.on('error', () => socket.destroy());
    try {
      response.assignSocket(socket);
    } catch {
      // It was sent before the answer to the request in front of it was.
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
  server.on('connect', (_request: IncomingMessage, stream: Duplex) => {
    const detail = 'CONNECT is not supported: the platform does not proxy to other hosts';
    stream.on('error', () => stream.destroy());
    endWithProblem(stream, { problem: new ProblemError('malformed', detail), clock });
  });
}

/** A client that goes away is noticed by reading alone; one that ends its side counts as gone, as elsewhere. */
function readEarly(socket: Socket, head: Buffer): () => Buffer {
  const pieces = [head];
  let bytes = head.length;
  const keep = (piece: Buffer) => {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes >= MAX_EARLY_BYTES) socket.pause();
  };
  const leave = () => socket.destroy();
  socket.on('data', keep).once('end', leave);
  return () => {
    socket.pause().off('data', keep).off('end', leave);
    return Buffer.concat(pieces);
  };
}

/**
 * A client that waits with its body is told to go on by whoever reads the body: after its key and the
 * length were checked, or when there is a worker to take it.
 */
export function serveExpectations(server: Server, listener: RequestListener): void {
  server.on('checkContinue', listener);
}

export interface Tunnel {
  client: Socket;
  worker: Duplex;
  /** What the client has sent already. */
  head: Buffer;
  clock: Clock;
}

/** Resolves when both are closed: with the end of one the other ends too. */
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
