// The open connections: how many there may be, which of them have a request under way, and which are cut
// because their client does not read.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { BlockList, isIPv4, isIPv6, type Server, type Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { HttpBounds } from './bounds.ts';
import { noteExchange } from './exchanges.ts';

/** Dropped connections of one cause are logged once in this time, ms. */
const LOG_EVERY_MS = 60_000;
/** A stall is noticed at most this share of its limit too late. */
const CHECKS_PER_STALL = 6;

export interface ConnectionsOptions {
  bounds: Pick<
    HttpBounds,
    'maxConnections' | 'maxAddressConnections' | 'stallMs' | 'trustedProxies'
  >;
  clock: Clock;
  log: Log;
  /** Addresses without a bound of their own, beside the trusted proxies. Default: loopback. */
  exempt?: readonly string[];
  /** Connections with a valid key are kept, whether or not `noteRequest` saw a request. Default: false. */
  keepKnown?: boolean;
}

interface Connection {
  socket: Socket;
  name: string;
  /** Of its client, or the network that stands for it. */
  address: string;
  /** A request on it has shown a valid key. */
  isKnown: boolean;
  /** The last answer that was asked for on it. */
  response: ServerResponse | undefined;
  /** Changes whenever the client has read. */
  progress: string;
  progressAt: number;
}

type DropCause = 'all connections' | 'connections of an address' | 'stalled reader';

export class Connections {
  readonly #options: ConnectionsOptions;
  /** By the names of both ends: a TLS socket and the socket below it have the same. */
  readonly #open = new Map<string, Connection>();
  readonly #bySocket = new WeakMap<Socket, Connection>();
  readonly #unknownOf = new Map<string, number>();
  readonly #exempt: BlockList;
  readonly #drops: Drops;
  #cancelCheck: (() => void) | undefined;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    const { bounds, clock, exempt = LOOPBACK, log } = options;
    this.#exempt = listAddresses([...exempt, ...bounds.trustedProxies]);
    this.#drops = new Drops(clock, log);
  }

  /** Until `stop`. */
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

  noteRequest(request: IncomingMessage, response: ServerResponse): void {
    noteExchange(request, response);
    const connection = this.#find(request.socket);
    if (connection) connection.response = response;
  }

  /** The client has shown a valid key. */
  noteKnown(socket: Socket): void {
    const connection = this.#find(socket);
    if (!connection || connection.isKnown) return;
    connection.isKnown = true;
    this.#countUnknown(connection.address, -1);
  }

  /** Whatever else is written to it would be read as a part of an answer, or as that to another request. */
  isAnswering(socket: Socket): boolean {
    const last = this.#find(socket)?.response;
    if (!last || last.writableFinished) return false;
    // Behind an answer that is not over yet, the last one has no socket.
    return last.headersSent || last.socket === null;
  }

  /**
   * Node's own closeIdleConnections spares those that have not sent anything yet, and clients open
   * such in advance.
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
    // HTTP/2 has an object of its own for the socket.
    return this.#bySocket.get(socket) ?? this.#open.get(nameOf(socket));
  }

  #admit(socket: Socket): void {
    const { bounds, clock } = this.#options;
    const address = groupOf(socket.remoteAddress ?? '');
    const isBounded = !isListed(this.#exempt, socket.remoteAddress ?? '');
    if (isBounded && (this.#unknownOf.get(address) ?? 0) >= bounds.maxAddressConnections) {
      this.#drop(socket, 'connections of an address', address);
      return;
    }
    if (this.#open.size >= bounds.maxConnections) {
      const idle = this.#findDispensable();
      this.#drop(idle?.socket ?? socket, 'all connections', idle?.address ?? address);
      if (!idle) return;
    }
    const name = nameOf(socket);
    const connection: Connection = {
      ...{ socket, name, address, isKnown: false, response: undefined },
      ...{ progress: '', progressAt: clock.now() },
    };
    this.#open.set(name, connection);
    this.#bySocket.set(socket, connection);
    this.#countUnknown(address, 1);
    socket.once('close', () => this.#forget(connection));
  }

  #forget(connection: Connection): void {
    if (this.#open.get(connection.name) !== connection) return;
    this.#open.delete(connection.name);
    if (!connection.isKnown) this.#countUnknown(connection.address, -1);
  }

  #countUnknown(address: string, change: number): void {
    const count = (this.#unknownOf.get(address) ?? 0) + change;
    if (count > 0) this.#unknownOf.set(address, count);
    else this.#unknownOf.delete(address);
  }

  /** The oldest connection without a valid key, else the oldest without a request. */
  #findDispensable(): Connection | undefined {
    let idle: Connection | undefined;
    for (const connection of this.#open.values()) {
      if (!connection.isKnown) return connection;
      if (!this.#options.keepKnown && isIdle(connection.response)) idle ??= connection;
    }
    return idle;
  }

  #drop(socket: Socket, cause: DropCause, address: string): void {
    socket.destroy();
    // Its place is free at once.
    const connection = this.#find(socket);
    if (connection) this.#forget(connection);
    this.#drops.note(cause, address);
  }

  #checkLater(): void {
    const { bounds, clock } = this.#options;
    this.#cancelCheck = clock.after(bounds.stallMs / CHECKS_PER_STALL, () => {
      this.#checkReaders();
      this.#checkLater();
    });
  }

  /** All writes are small: a client that reads changes what is written or what waits to be. */
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
        this.#drop(socket, 'stalled reader', connection.address);
      }
    }
  }
}

/** No request is under way. */
function isIdle(response: ServerResponse | undefined): boolean {
  // The answer 101 is the beginning of what the connection is for.
  return !response || (response.writableFinished && response.statusCode !== 101);
}

const LOOPBACK = ['127.0.0.0/8', '::1'];

function nameOf({ localPort, remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localPort}`;
}

/** An IPv6 client has a network of its own: all its addresses count as one. */
function groupOf(address: string): string {
  const plain = unmap(address);
  if (!isIPv6(plain)) return plain;
  const [head = '', tail] = plain.split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail ? tail.split(':') : [];
  const zeros = tail === undefined ? 0 : 8 - left.length - right.length;
  const groups = [...left, ...Array<string>(zeros).fill('0'), ...right];
  return `${groups.slice(0, 4).join(':')}::/64`;
}

function unmap(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '');
}

/** @throws RangeError naming the entry that is no address and no network */
export function listAddresses(entries: readonly string[]): BlockList {
  const list = new BlockList();
  for (const entry of entries) {
    const [address = '', bits] = entry.split('/');
    const family = isIPv4(address) ? 'ipv4' : 'ipv6';
    const isValid = (family === 'ipv4' || isIPv6(address)) && /^\d{1,3}$/.test(bits ?? '0');
    if (!isValid || Number(bits) > (family === 'ipv4' ? 32 : 128)) {
      throw new RangeError(
        `${JSON.stringify(entry)} is not valid; give an IP address or a network such as 10.0.0.0/8`,
      );
    }
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

export function isListed(list: BlockList, address: string): boolean {
  const plain = unmap(address);
  if (isIPv4(plain)) return list.check(plain, 'ipv4');
  return isIPv6(plain) && list.check(plain, 'ipv6');
}

/** Says once a minute for each cause how many connections were dropped. */
class Drops {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #counts = new Map<DropCause, { count: number; loggedAt: number }>();

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
  }

  note(cause: DropCause, address: string): void {
    const now = this.#clock.now();
    const seen = this.#counts.get(cause) ?? { count: 0, loggedAt: -Infinity };
    seen.count += 1;
    this.#counts.set(cause, seen);
    if (now - seen.loggedAt < LOG_EVERY_MS) return;
    this.#log.warn({ cause, address, count: seen.count }, 'connections dropped');
    this.#counts.set(cause, { count: 0, loggedAt: now });
  }
}
