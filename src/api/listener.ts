// The server's socket: Node's HTTP server with its limits and timeouts, and the problems that it reports
// itself.
import type { RequestListener, Server, ServerOptions } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { Socket } from 'node:net';
import { type SecureContextOptions, Server as TlsServer } from 'node:tls';
import type { Clock } from '../base/clock.ts';
import { http } from '../base/net/node-http.ts';
import { ProblemError } from '../wire/problem.ts';
import { describeOverflow, type HttpBounds } from './limits/bounds.ts';
import type { Connections } from './limits/connections.ts';
import { Intake, type IntakeOptions } from './limits/intake.ts';
import { type Connect, mayUpgrade, serveExpectations, serveUpgrades } from './proxy/upgrade.ts';

/** Interval of the checks for slow headers and requests, ms. */
const TIMEOUT_CHECK_MS = 5_000;

export const SOCKET_OPTIONS = {
  noDelay: true,
  // Detects a client that vanished while neither side sends anything.
  keepAlive: true,
  keepAliveInitialDelay: 60_000,
};

const LISTENER_OPTIONS: ServerOptions = {
  connectionsCheckingInterval: TIMEOUT_CHECK_MS,
  ...SOCKET_OPTIONS,
  // The guard requires a Host header: Node's own error would not be a problem document.
  requireHostHeader: false,
  shouldUpgradeCallback: mayUpgrade,
};

/** PEM. */
export interface KeyPair {
  cert: string;
  key: string;
}

export interface ListenerOptions
  extends Pick<IntakeOptions, 'budget' | 'findUser' | 'origins' | 'scheduler'> {
  bounds: HttpBounds;
  clock: Clock;
  tls?: KeyPair;
  /** Serves CONNECT. Default: it is refused. */
  connect?: Connect;
}

export function createListener(
  listener: RequestListener,
  options: ListenerOptions,
  connections: Connections,
): Server {
  const { bounds, tls } = options;
  const intake = new Intake({ ...options, connections });
  const listening: ServerOptions = {
    ...LISTENER_OPTIONS,
    // The guard rejects a head beyond each bound, and names the bound.
    maxHeaderSize: bounds.maxHeaderBytes + bounds.maxTargetBytes,
    headersTimeout: bounds.headersMs,
    requestTimeout: bounds.transferMs,
    keepAliveTimeout: bounds.idleMs,
  };
  const note: RequestListener = (request, response) => {
    if (connections.noteRequest(request, response)) intake.admit(request, response, listener);
  };
  const server = tls
    ? createHttpsServer({ ...listening, ...tls }, note)
    : http.createServer(listening, note);
  serveUpgrades(server, note, { ...options, detach: (socket) => intake.detach(socket) });
  serveExpectations(server, note);
  // Node itself would reject an unknown expectation without a problem document.
  server.on('checkExpectation', note);
  // Nothing behind unreadable data can be read: each further piece would be one more error.
  server.prependListener('clientError', (_error, stream) => intake.detach(stream));
  connections.watch(server);
  server.on(tls ? 'secureConnection' : 'connection', (socket: Socket) => intake.attach(socket));
  return server;
}

/** For connections that begin from now on. A server without TLS has none. @throws the error of the TLS library */
export function useCertificate(server: object, context: SecureContextOptions): void {
  if (server instanceof TlsServer) server.setSecureContext(context);
}

/** Returns the problem for bytes that are not a request, or that arrived too late. */
export function describeClientError(
  error: NodeJS.ErrnoException,
  bounds: HttpBounds,
): ProblemError {
  const { code } = error;
  if (code === 'HPE_HEADER_OVERFLOW') {
    return describeOverflow('rawPacket' in error ? error.rawPacket : undefined, bounds);
  }
  return code === 'ERR_HTTP_REQUEST_TIMEOUT' ? LATE_REQUEST : NOT_HTTP;
}

/** Created once: a stack trace for each of thousands would cost more than the responses. */
const LATE_REQUEST = new ProblemError('request_timeout', 'The request took too long to arrive.');
const NOT_HTTP = new ProblemError('malformed', 'The request is not valid HTTP.');
