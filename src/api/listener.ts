// The server's socket: Node's HTTP server with its limits and timeouts, and the problems that it reports itself. Reads the
// requests of a connection no faster than the platform serves them.
import type { IncomingMessage, RequestListener, Server, ServerOptions } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type SecureContextOptions, Server as TlsServer } from 'node:tls';
import type { ByteBudget, Claim } from '../base/byte-budget.ts';
import type { Clock } from '../base/clock.ts';
import type { FairScheduler, Lane } from '../base/fair-scheduler.ts';
import { http } from '../base/net/node-http.ts';
import { ProblemError } from '../wire/problem.ts';
import { SYSTEM_ROUTES } from '../wire/routes/routes.ts';
import { type ClientOrigins, groupOf } from './http/client-origin.ts';
import { describeOverflow, type HttpBounds } from './limits/bounds.ts';
import type { Connections } from './limits/connections.ts';
import { UNCOUNTED_BYTES } from './limits/flows.ts';
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

const NO_BYTES = Buffer.alloc(0);
const HEAD_END = Buffer.from('\r\n\r\n');
/** Of an end of a head that may begin in one piece and end in the next. */
const TAIL_BYTES = HEAD_END.length - 1;
/** `GET / HTTP/1.0` and an empty line; no request is shorter. */
const MIN_REQUEST_BYTES = 18;
const HEALTH_PATHS: readonly string[] = [
  SYSTEM_ROUTES.getHealth.path,
  SYSTEM_ROUTES.getReadiness.path,
];

export interface IntakeOptions {
  bounds: Pick<HttpBounds, 'maxPipelinedRequests' | 'maxKeylessPipelinedRequests' | 'idleMs'>;
  clock: Clock;
  connections: Connections;
  /** Bytes that were received and not yet parsed. */
  budget: ByteBudget;
  /** User of the request's valid key. */
  findUser: (request: IncomingMessage) => string | undefined;
  /** Finds the client behind a trusted proxy. Default: the peer is the client. */
  origins?: ClientOrigins | undefined;
  /** Bound the requests of one iteration of the event loop. */
  scheduler: FairScheduler;
}

interface Reading {
  socket: Socket;
  /** Passes bytes to Node's parser. */
  parse: (bytes: Buffer) => void;
  /** The last request that was parsed. */
  last: IncomingMessage | undefined;
  /** Bytes of its body that have not arrived, if it has announced its length. */
  bodyLeft: number;
  /** The last bytes that were parsed. */
  tail: Buffer;
  unanswered: number;
  /** The last request waits for its turn. */
  isWaiting: boolean;
  /** The socket is paused and has bytes that were received. */
  isHeld: boolean;
  claim: Claim | undefined;
  cancelIdle: () => void;
  /** This class no longer reads the connection. */
  detach: () => void;
  isDetached: boolean;
}

/**
 * One request of a connection waits for its turn at most, and a bounded number for their answers. What the client sends
 * beyond that stays unread: its bytes cost memory, but no parsed requests.
 */
class Intake {
  readonly #options: IntakeOptions;
  readonly #readings = new WeakMap<Duplex, Reading>();

  constructor(options: IntakeOptions) {
    this.#options = options;
  }

  /** Takes over a socket's data from Node's HTTP server, whose listener has just got the socket. */
  attach(socket: Socket): void {
    const [parse] = socket.listeners('data');
    if (!parse || socket.destroyed) return;
    // These listeners make a paused socket read nothing. Node removes them when the data gets another reader.
    const flow = ['pause', 'resume'].map((event) => ({ event, were: socket.listeners(event) }));
    const read = (bytes: Buffer) => this.#read(reading, bytes);
    const reading: Reading = {
      socket,
      parse: (bytes) => void Reflect.apply(parse, socket, [bytes]),
      last: undefined,
      bodyLeft: 0,
      tail: NO_BYTES,
      unanswered: 0,
      isWaiting: false,
      isHeld: false,
      claim: undefined,
      cancelIdle() {},
      isDetached: false,
      detach() {
        socket.off('data', read);
        reading.isDetached = true;
      },
    };
    this.#readings.set(socket, reading);
    socket.removeAllListeners('data').on('data', read);
    for (const { event, were } of flow) restore(socket, event, were);
    socket.once('close', () => this.#letGo(reading));
  }

  /** Call it when the connection switches protocols, before anything else reads the socket, or cannot be read. */
  detach(socket: Duplex): void {
    this.#readings.get(socket)?.detach();
  }

  /** Serves the request when its turn comes. */
  admit(...[request, response, serve]: [...Parameters<RequestListener>, RequestListener]): void {
    const { socket } = request;
    const reading = this.#readings.get(socket);
    if (reading) {
      reading.last = request;
      reading.unanswered += 1;
      reading.isWaiting = true;
      response.once('close', () => {
        reading.unanswered -= 1;
        this.#continue(reading);
      });
    }
    this.#options.scheduler.run(
      () => this.#laneOf(request),
      () => {
        if (!socket.destroyed) serve(request, response);
        if (!reading) return;
        reading.isWaiting = false;
        this.#continue(reading);
      },
    );
  }

  #laneOf(request: IncomingMessage): Lane {
    const { connections, findUser, origins } = this.#options;
    const lane = connections.laneOf(request.socket);
    const owner = findUser(request) ?? (lane.group === 'users' ? lane.owner : undefined);
    const address = () => (origins ? groupOf(origins.ofRequest(request).address) : lane.owner);
    const [path = ''] = request.url?.split('?', 1) ?? [];
    if (HEALTH_PATHS.includes(path)) return { group: 'health', owner: owner ?? address() };
    return owner === undefined
      ? { group: 'addresses', owner: address() }
      : { group: 'users', owner };
  }

  #read(reading: Reading, bytes: Buffer): void {
    const { socket } = reading;
    let rest = bytes;
    this.#letGo(reading);
    while (rest.length > 0 && !socket.destroyed) {
      // Node itself pauses the socket when a body or a response is not read.
      if (this.#isFull(reading) || socket.isPaused()) {
        this.#hold(reading, rest);
        return;
      }
      const { headEnd, length } = findPiece(rest, reading);
      const before = reading.last;
      const piece = rest.subarray(0, length);
      rest = rest.subarray(length);
      reading.parse(piece);
      reading.bodyLeft = Math.max(0, reading.bodyLeft - length);
      const { last } = reading;
      let isWhole = false;
      if (last && last !== before) {
        const { 'content-length': announced = '0' } = last.headers;
        const left = Number(announced) - length + headEnd;
        isWhole = last.complete && left === 0;
        reading.bodyLeft = last.complete ? 0 : Math.max(0, left);
      }
      // Nothing of the next request has arrived behind a whole one.
      reading.tail = isWhole
        ? NO_BYTES
        : Buffer.concat([reading.tail, piece.subarray(-TAIL_BYTES)]).subarray(-TAIL_BYTES);
      if (!reading.isDetached) continue;
      if (rest.length > 0) socket.unshift(rest);
      return;
    }
  }

  /** The next request must not be parsed yet. The body of a request that is served still is. */
  #isFull({ isWaiting, last, socket, unanswered }: Reading): boolean {
    const { bounds, connections } = this.#options;
    if (isWaiting) return true;
    const isKeyless = connections.laneOf(socket).group === 'addresses';
    const limit = bounds[isKeyless ? 'maxKeylessPipelinedRequests' : 'maxPipelinedRequests'];
    return unanswered >= limit && last?.complete !== false;
  }

  #hold(reading: Reading, bytes: Buffer): void {
    const { budget, connections } = this.#options;
    const { socket } = reading;
    socket.pause();
    socket.unshift(bytes);
    reading.isHeld = true;
    this.#boundIdle(reading);
    if (bytes.length <= UNCOUNTED_BYTES) return;
    const { owner } = connections.laneOf(socket);
    const drop = () => void socket.destroy();
    const transfer = { owner, bytes: bytes.length, moved: () => socket.bytesRead, drop };
    reading.claim = budget.tryClaim(transfer);
    if (!reading.claim) connections.drop(socket, 'bytes in flight');
  }

  /** A socket that is not read does not tell that the client has left. */
  #boundIdle(reading: Reading): void {
    const { bounds, clock, connections } = this.#options;
    reading.cancelIdle();
    if (reading.isWaiting || !this.#isFull(reading)) return;
    const drop = () => connections.drop(reading.socket, 'unanswered requests');
    reading.cancelIdle = clock.after(bounds.idleMs, drop);
  }

  #letGo(reading: Reading): void {
    reading.isHeld = false;
    reading.cancelIdle();
    reading.claim?.release();
    reading.claim = undefined;
  }

  #continue(reading: Reading): void {
    if (!reading.isHeld) return;
    this.#boundIdle(reading);
    if (this.#isFull(reading)) return;
    reading.isHeld = false;
    reading.socket.resume();
  }
}

/**
 * Number of bytes that may be parsed at once: they contain at most one new request. `headEnd`: where its head ends, or 0.
 * The client must not choose how often bytes are searched and parsed: a piece is as long as the shortest request.
 */
function findPiece(bytes: Buffer, { bodyLeft, tail }: Pick<Reading, 'bodyLeft' | 'tail'>) {
  if (bodyLeft > 0) return { length: Math.min(bodyLeft, bytes.length), headEnd: 0 };
  const headEnd = findHeadEnd(bytes, tail);
  // The start of the next end of a head behind which a second request may end.
  const from = headEnd + MIN_REQUEST_BYTES - HEAD_END.length;
  if (headEnd === 0 || bytes.indexOf(HEAD_END, from) < 0) return { length: bytes.length, headEnd };
  const last = bytes.lastIndexOf(HEAD_END, from - 1);
  return { length: Math.max(headEnd, last + HEAD_END.length), headEnd };
}

/** 0 without one. It may have begun in the bytes before. */
function findHeadEnd(bytes: Buffer, tail: Buffer): number {
  if (tail.length > 0) {
    const joint = Buffer.concat([tail, bytes.subarray(0, TAIL_BYTES)]).indexOf(HEAD_END);
    if (joint >= 0) return joint + HEAD_END.length - tail.length;
  }
  const at = bytes.indexOf(HEAD_END);
  return at < 0 ? 0 : at + HEAD_END.length;
}

function restore(socket: Socket, event: string, listeners: readonly unknown[]): void {
  const left: readonly unknown[] = socket.listeners(event);
  for (const listener of listeners) {
    if (!left.includes(listener)) Reflect.apply(socket.on, socket, [event, listener]);
  }
}
