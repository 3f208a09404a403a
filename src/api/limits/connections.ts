// Tracks the open connections and their running requests. Closes connections beyond a bound, and those whose client
// does not read. A flood of dropped connections makes one line of the log per cause and minute.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ServerHttp2Stream } from 'node:http2';
import type { BlockList, Server, Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import type { Lane } from '../../base/fair-scheduler.ts';
import type { Log } from '../../base/log.ts';
import { groupOf, isListed, listAddresses } from '../http/client-origin.ts';
import type { HttpBounds } from './bounds.ts';
import { noteExchange } from './exchanges.ts';

/** Checks within the limit of a stall: a stall is detected at most a sixth of the limit too late. */
const CHECKS_PER_STALL = 6;

export interface ConnectionsOptions {
  bounds: Pick<
    HttpBounds,
    'maxConnections' | 'maxAddressConnections' | 'maxUserConnections' | 'stallMs' | 'trustedProxies'
  >;
  clock: Clock;
  log: Log;
  /** Addresses without a bound, besides the trusted proxies. Default: loopback. */
  exempt?: readonly string[];
}

interface Connection {
  socket: Socket;
  name: string;
  /** Address of the client, or the network that stands for it. */
  address: string;
  /** User of the last request with a valid key; undefined until there was one. */
  userId: string | undefined;
  /** Response of the last request. */
  response: ServerResponse | undefined;
  /** Open HTTP/2 streams that have shown a valid key. */
  streams: number;
  /** Changes whenever the client has read. */
  progress: string;
  progressAt: number;
}

export class Connections {
  readonly #options: ConnectionsOptions;
  /** By the names of both ends, which are equal for a TLS socket and the socket below it. */
  readonly #open = new Map<string, Connection>();
  readonly #bySocket = new WeakMap<Socket, Connection>();
  readonly #keylessOf = new Map<string, number>();
  /** By user, the oldest first. */
  readonly #ofUsers = new Map<string, Set<Connection>>();
  readonly #exempt: BlockList;
  readonly #drops: DropLog;
  #cancelCheck: (() => void) | undefined;
  #isShuttingDown = false;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    const { bounds, clock, exempt = LOOPBACK, log } = options;
    this.#exempt = listAddresses([...exempt, ...bounds.trustedProxies]);
    this.#drops = new DropLog(clock, log);
  }

  /** Watches the server until `stop`. */
  watch(server: Server): void {
    server.on('connection', (socket: Socket) => this.#admit(socket));
    server.on('secureConnection', (socket: Socket) => {
      const connection = this.#open.get(nameOf(socket));
      if (!connection) return;
      connection.socket = socket;
      this.#bySocket.set(socket, connection);
    });
    if (!this.#cancelCheck) this.#checkLater();
  }

  stop(): void {
    this.#cancelCheck?.();
  }

  get isShuttingDown(): boolean {
    return this.#isShuttingDown;
  }

  /** From now on each connection ends with the response to its last request, and says so: `Connection: close`. */
  announceShutdown(): void {
    this.#isShuttingDown = true;
    for (const { response } of this.#open.values()) {
      if (response && !response.headersSent) response.shouldKeepAlive = false;
    }
  }

  /** Returns false if the request must not be served, because the connection ends before it. */
  noteRequest(request: IncomingMessage, response: ServerResponse): boolean {
    const connection = this.#find(request.socket);
    if (this.#isShuttingDown && !makeLast(response, connection?.response)) return false;
    noteExchange(request, response);
    if (connection) connection.response = response;
    return true;
  }

  /**
   * Counts the connection for the user of a valid key. If the user has too many, closes the user's
   * oldest idle one. Returns false if there is none: the request must be rejected.
   */
  noteUser(socket: Socket, userId: string): boolean {
    const connection = this.#find(socket);
    if (!connection || connection.userId === userId) return true;
    const { maxUserConnections } = this.#options.bounds;
    const ofUser = this.#ofUsers.get(userId) ?? new Set();
    if (ofUser.size >= maxUserConnections) {
      const idle = this.#findIdle(ofUser);
      if (!idle) {
        this.#drops.note('connections of a user', { address: connection.address, userId });
        return false;
      }
      this.#drop(idle.socket, 'connections of a user', idle);
    }
    this.#uncount(connection);
    connection.userId = userId;
    this.#ofUsers.set(userId, ofUser.add(connection));
    return true;
  }

  /** Lane of the connection's user, or of its address if it has shown no valid key. */
  laneOf(socket: Socket): Lane {
    const { address, userId } = this.#find(socket) ?? {};
    if (userId !== undefined) return { group: 'users', owner: userId };
    return { group: 'addresses', owner: address ?? groupOf(socket.remoteAddress ?? '') };
  }

  drop(socket: Socket, cause: DropCause): void {
    this.#drop(socket, cause, this.#find(socket) ?? { address: socket.remoteAddress ?? '' });
  }

  /** The connection counts as busy until the stream is closed. */
  noteStream(stream: ServerHttp2Stream): void {
    const connection = stream.session && this.#find(stream.session.socket);
    if (!connection) return;
    connection.streams++;
    stream.once('close', () => connection.streams--);
  }

  /**
   * Whether the client would read other data as part of a response, or as the response to another
   * request.
   */
  isAnswering(socket: Socket): boolean {
    const last = this.#find(socket)?.response;
    if (!last || last.writableFinished) return false;
    // Behind an unfinished response, the last one has no socket.
    return last.headersSent || last.socket === null;
  }

  /**
   * Node's closeIdleConnections spares connections that have not sent anything yet, which clients
   * open in advance.
   */
  closeIdle(): void {
    for (const { response, socket } of this.#open.values()) {
      if (isIdle(response)) socket.destroy();
    }
  }

  closeAll(): void {
    for (const { socket } of this.#open.values()) socket.destroy();
  }

  #find(socket: Socket): Connection | undefined {
    // HTTP/2 uses a different object for the socket.
    return this.#bySocket.get(socket) ?? this.#open.get(nameOf(socket));
  }

  #admit(socket: Socket): void {
    const { bounds, clock } = this.#options;
    const address = groupOf(socket.remoteAddress ?? '');
    const isBounded = !isListed(this.#exempt, socket.remoteAddress ?? '');
    if (isBounded && (this.#keylessOf.get(address) ?? 0) >= bounds.maxAddressConnections) {
      this.#drop(socket, 'connections of an address', { address });
      return;
    }
    if (this.#open.size >= bounds.maxConnections) {
      const idle = this.#findDispensable();
      this.#drop(idle?.socket ?? socket, 'all connections', idle ?? { address });
      if (!idle) return;
    }
    const name = nameOf(socket);
    const connection: Connection = {
      socket,
      name,
      address,
      userId: undefined,
      response: undefined,
      streams: 0,
      progress: '',
      progressAt: clock.now(),
    };
    this.#open.set(name, connection);
    this.#bySocket.set(socket, connection);
    this.#countKeyless(address, 1);
    socket.once('close', () => this.#forget(connection));
  }

  #forget(connection: Connection): void {
    if (this.#open.get(connection.name) !== connection) return;
    this.#open.delete(connection.name);
    this.#uncount(connection);
  }

  #uncount(connection: Connection): void {
    const { address, userId } = connection;
    if (userId === undefined) {
      this.#countKeyless(address, -1);
      return;
    }
    const ofUser = this.#ofUsers.get(userId);
    ofUser?.delete(connection);
    if (ofUser?.size === 0) this.#ofUsers.delete(userId);
  }

  #countKeyless(address: string, change: number): void {
    const count = (this.#keylessOf.get(address) ?? 0) + change;
    if (count > 0) this.#keylessOf.set(address, count);
    else this.#keylessOf.delete(address);
  }

  /** The oldest connection without a valid key, else the oldest idle one. */
  #findDispensable(): Connection | undefined {
    for (const connection of this.#open.values()) {
      if (connection.userId === undefined) return connection;
    }
    return this.#findIdle(this.#open.values());
  }

  #findIdle(connections: Iterable<Connection>): Connection | undefined {
    for (const connection of connections) {
      if (connection.streams === 0 && isIdle(connection.response)) return connection;
    }
    return undefined;
  }

  #drop(socket: Socket, cause: DropCause, peer: Peer): void {
    socket.destroy();
    // Another connection can take its place at once.
    const connection = this.#find(socket);
    if (connection) this.#forget(connection);
    this.#drops.note(cause, peer);
  }

  #checkLater(): void {
    const { bounds, clock } = this.#options;
    this.#cancelCheck = clock.after(bounds.stallMs / CHECKS_PER_STALL, () => {
      this.#checkReaders();
      this.#checkLater();
    });
  }

  /** All writes are small: a reading client changes the written or the buffered amount. */
  #checkReaders(): void {
    const { bounds, clock } = this.#options;
    const now = clock.now();
    for (const connection of this.#open.values()) {
      const { socket } = connection;
      const progress = `${socket.bytesWritten}/${socket.writableLength}`;
      if (socket.writableLength === 0 || progress !== connection.progress) {
        connection.progress = progress;
        connection.progressAt = now;
      } else if (now - connection.progressAt >= bounds.stallMs) {
        this.#drop(socket, 'stalled reader', connection);
      }
    }
  }
}

/**
 * Moves the end of a connection from the response before, if that is not written yet, to this one: requests may be
 * pipelined. Returns false if the response before has told the client that it is the last: the client repeats this
 * request on another connection.
 */
function makeLast(response: ServerResponse, before: ServerResponse | undefined): boolean {
  if (before && !before.writableFinished && !before.shouldKeepAlive) {
    if (before.headersSent) return false;
    before.shouldKeepAlive = true;
  }
  response.shouldKeepAlive = false;
  return true;
}

/** Whether no request is running. */
function isIdle(response: ServerResponse | undefined): boolean {
  // After a 101 response, the connection has just begun its work.
  return !response || (response.writableFinished && response.statusCode !== 101);
}

const LOOPBACK = ['127.0.0.0/8', '::1'];

function nameOf({ localPort, remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localPort}`;
}

/** Dropped connections are logged once per cause in this time, ms. */
const LOG_EVERY_MS = 60_000;

type DropCause =
  | 'all connections'
  | 'bytes in flight'
  | 'connections of an address'
  | 'connections of a user'
  | 'stalled reader'
  | 'unanswered requests';

interface Peer {
  /** Address of the client, or the network that stands for it. */
  address: string;
  /** User of the last request with a valid key. */
  userId?: string | undefined;
}

/** Logs once a minute, for each cause, how many connections were dropped. */
class DropLog {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #counts = new Map<DropCause, { count: number; loggedAt: number }>();

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
  }

  note(cause: DropCause, { address, userId }: Peer): void {
    const now = this.#clock.now();
    const seen = this.#counts.get(cause) ?? { count: 0, loggedAt: -Infinity };
    seen.count += 1;
    this.#counts.set(cause, seen);
    if (now - seen.loggedAt < LOG_EVERY_MS) return;
    this.#log.warn({ cause, address, userId, count: seen.count }, 'connections dropped');
    this.#counts.set(cause, { count: 0, loggedAt: now });
  }
}
