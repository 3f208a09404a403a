// A TCP relay in front of a server that injects faults into all connections: lost answers, resets,
// half-open connections. It does not read the traffic.
import { once } from 'node:events';
import { createServer, type Server, type Socket, connect as tcpConnect } from 'node:net';

/**
 * `mute`: the server's data is lost. `dead`: half-open; nothing passes in either direction, nothing
 * fails.
 */
type Line = 'open' | 'mute' | 'dead';

interface RelayedConnection {
  readonly client: Socket;
  readonly server: Socket;
  line: Line;
  /** The connection dies after this many more bytes from the server. */
  bytesToLive: number;
}

export class Relay {
  readonly #server: Server;
  readonly #connections = new Set<RelayedConnection>();
  #target: { host: string; port: number } | undefined;
  #port = 0;
  /** State of new connections. */
  #line: Exclude<Line, 'dead'> = 'open';

  private constructor() {
    this.#server = createServer({ noDelay: true, allowHalfOpen: true }, (client) =>
      this.#connect(client),
    );
  }

  /**
   * Listens on the port; 0 selects a free one. @throws the system's error for an invalid address
   */
  static async start(host = '127.0.0.1', port = 0): Promise<Relay> {
    const relay = new Relay();
    relay.#server.listen(port, host);
    await once(relay.#server, 'listening');
    const address = relay.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the relay has no port');
    relay.#port = address.port;
    return relay;
  }

  get port(): number {
    return this.#port;
  }

  /** Sends new connections to the URL's host and port; without a URL they are refused. */
  set target(url: string | undefined) {
    if (url === undefined) this.#target = undefined;
    else {
      const { hostname, port } = new URL(url);
      this.#target = { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) };
    }
  }

  /** Drops the server's data from now on, until `cut`. */
  mute(): void {
    this.#line = 'mute';
    for (const connection of this.#connections) connection.line = 'mute';
  }

  /** Makes all connections half-open: both ends still believe in them. */
  kill(): void {
    for (const connection of this.#connections) connection.line = 'dead';
  }

  /** Like `kill`, for each connection after this many more bytes from the server. */
  killAfter(bytes: number): void {
    for (const connection of this.#connections) connection.bytesToLive = bytes;
  }

  /** Resets all connections; new ones work. */
  cut(): void {
    this.#line = 'open';
    for (const { client, server } of this.#connections) {
      reset(client);
      reset(server);
    }
  }

  /** Resets the half-open connections, as an operating system does at some point. */
  resetDead(): void {
    for (const { client, line, server } of this.#connections) {
      if (line !== 'dead') continue;
      reset(client);
      reset(server);
    }
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    await closed;
  }

  #connect(client: Socket): void {
    if (!this.#target) {
      client.on('error', () => undefined);
      reset(client);
      return;
    }
    const server = tcpConnect({ ...this.#target, noDelay: true, allowHalfOpen: true });
    const bytesToLive = Number.POSITIVE_INFINITY;
    const connection: RelayedConnection = { client, server, line: this.#line, bytesToLive };
    this.#connections.add(connection);
    server.on('data', ({ length }) => {
      connection.bytesToLive -= length;
      if (connection.bytesToLive < 0) connection.line = 'dead';
    });
    carry(client, server, () => connection.line !== 'dead');
    carry(server, client, () => connection.line === 'open');
    const drop = () => {
      this.#connections.delete(connection);
      // On a half-open connection, neither end learns that the other has closed.
      if (connection.line === 'dead' && !(client.destroyed && server.destroyed)) {
        this.#connections.add(connection);
        return;
      }
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      socket.on('error', () => undefined);
      socket.once('close', drop);
    }
  }
}

function carry(from: Socket, to: Socket, passes: () => boolean): void {
  from.on('data', (piece) => {
    if (!passes()) return;
    if (!to.write(piece)) {
      from.pause();
      to.once('drain', () => from.resume());
    }
  });
  from.on('end', () => passes() && to.end());
}

/**
 * libuv refuses to reset a socket that is shutting down, yet Node forgets the handle, so the
 * process would never exit (seen in Node 24.21).
 */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
