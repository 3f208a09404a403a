// A TCP relay in front of a server that does to all connections at once what it is told: answers that
// never arrive, a cut, a line that is dead and does not say so. It knows nothing of what passes.
import { once } from 'node:events';
import { createServer, type Server, type Socket, connect as tcpConnect } from 'node:net';

/** `mute`: what the server says is lost. `dead`: nothing passes either way, nothing fails. */
type Line = 'open' | 'mute' | 'dead';

interface Connection {
  readonly client: Socket;
  readonly server: Socket;
  line: Line;
  /** It dies when the server has said so many bytes more. */
  bytesToLive: number;
}

export class Relay {
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  #target: { host: string; port: number } | undefined;
  #port = 0;
  /** Of new connections. */
  #line: Exclude<Line, 'dead'> = 'open';

  private constructor() {
    this.#server = createServer({ noDelay: true, allowHalfOpen: true }, (client) =>
      this.#connect(client),
    );
  }

  /** Listens on the port, 0 for a free one. @throws what the system says about the address */
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

  /** From now on new connections go to the URL's host and port; without one they are refused. */
  set target(url: string | undefined) {
    if (url === undefined) this.#target = undefined;
    else {
      const { hostname, port } = new URL(url);
      this.#target = { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) };
    }
  }

  /** What the server says from now on is lost, until the lines are cut. */
  mute(): void {
    this.#line = 'mute';
    for (const connection of this.#connections) connection.line = 'mute';
  }

  /** Both ends of each connection that there is go on believing in the other. */
  kill(): void {
    for (const connection of this.#connections) connection.line = 'dead';
  }

  /** As `kill`, for each when so many bytes more have come from the server. */
  killAfter(bytes: number): void {
    for (const connection of this.#connections) connection.bytesToLive = bytes;
  }

  /** Both ends of each connection that there is get a reset; new ones are as good as ever. */
  cut(): void {
    this.#line = 'open';
    for (const { client, server } of this.#connections) {
      reset(client);
      reset(server);
    }
  }

  /** The dead ones are reset, as a system does with them at some time. */
  bury(): void {
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
    const connection: Connection = { client, server, line: this.#line, bytesToLive };
    this.#connections.add(connection);
    server.on('data', ({ length }) => {
      connection.bytesToLive -= length;
      if (connection.bytesToLive < 0) connection.line = 'dead';
    });
    carry(client, server, () => connection.line !== 'dead');
    carry(server, client, () => connection.line === 'open');
    const drop = () => {
      this.#connections.delete(connection);
      // On a dead line neither end hears of the other's.
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
 * One that is being shut down cannot be reset: libuv refuses it, Node forgets the handle all the same,
 * and the process never comes to its end (seen in Node 24.21).
 */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
