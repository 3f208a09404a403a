// A TCP proxy that simulates bad networks. It does not parse HTTP: bytes of a client up to the
// server's next bytes are a request, the bytes back are its answer, and both are an exchange. The
// caller's `weather` decides when and how often a fault strikes.
import { once } from 'node:events';
import { createServer, type Server, type Socket, connect as tcpConnect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A direction; `afterBytes` of it pass, at most all of its first piece but the last byte. */
interface Place {
  direction: 'request' | 'answer';
  afterBytes: number;
}

/** What can happen to one exchange. */
export type Fault =
  /** Both sides get a reset. */
  | ({ kind: 'cut' } & Place)
  /** No byte passes any more, not even an end: each side believes that the other is connected. */
  | ({ kind: 'half-open' } & Place)
  | { kind: 'slow'; bytesPerSecond: number }
  /** The request, or the answer, waits until so many exchanges have begun after it, or `maxMs`. */
  | { kind: 'held'; direction: Place['direction']; behind: number; maxMs: number }
  /** The answer ends properly, after so many bytes of it, as in `Place`. */
  | { kind: 'truncated'; afterBytes: number }
  /** The server has acted; the client sees the connection end without a byte. */
  | { kind: 'answer-lost' };

/** Called at the start of each exchange; undefined passes it unchanged. */
export type Weather = () => Fault | undefined;

const CALM: Weather = () => undefined;
/** Length of the slices in which a slow connection gets its bytes, ms. */
const SLICE_MS = 20;
const HOLD_POLL_MS = 5;

export class TcpProxy {
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  #weather: Weather = CALM;
  #struck = 0;
  #exchanges = 0;
  #port = 0;

  private constructor(target: { host: string; port: number }) {
    this.#server = createServer({ noDelay: true }, (client) => {
      const server = tcpConnect({ ...target, noDelay: true });
      const connection = new Connection(client, server, this);
      this.#connections.add(connection);
      void connection.run().finally(() => this.#connections.delete(connection));
    });
  }

  /** Listens on a free port of 127.0.0.1 and forwards everything to the URL's host and port. */
  static async start(targetUrl: string): Promise<TcpProxy> {
    const { hostname, port } = new URL(targetUrl);
    const proxy = new TcpProxy({ host: hostname, port: Number(port) });
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    const address = proxy.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
    proxy.#port = address.port;
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Faults that had their effect so far. */
  get struck(): number {
    return this.#struck;
  }

  /** Exchanges that began so far. */
  get exchanges(): number {
    return this.#exchanges;
  }

  /** For the exchanges that begin from now on; without one, none is struck any more. */
  set weather(weather: Weather | undefined) {
    this.#weather = weather ?? CALM;
  }

  /** For the connections: one more exchange, and what happens to it. */
  begin(): Fault | undefined {
    this.#exchanges++;
    return this.#weather();
  }

  /** For the connections: a fault has its effect now. */
  strike(): void {
    this.#struck++;
  }

  async close(): Promise<void> {
    const hasClosed = once(this.#server, 'close');
    this.#server.close();
    for (const connection of this.#connections) connection.destroy();
    await hasClosed;
  }
}

/** One client's connection with its counterpart to the server. */
class Connection {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #proxy: TcpProxy;
  #now: 'idle' | 'request' | 'answer' = 'idle';
  #fault: Fault | undefined;
  /** Broken: further bytes are dropped, an end too. */
  #isFrozen = false;

  constructor(client: Socket, server: Socket, proxy: TcpProxy) {
    this.#client = client;
    this.#server = server;
    this.#proxy = proxy;
    // Errors end the pumps, which is all that has to happen.
    for (const socket of [client, server]) socket.on('error', () => undefined);
  }

  async run(): Promise<void> {
    await Promise.all([
      this.#pump('request', this.#client, this.#server),
      this.#pump('answer', this.#server, this.#client),
      waitForClose(this.#client),
      waitForClose(this.#server),
    ]);
  }

  destroy(): void {
    this.#client.destroy();
    this.#server.destroy();
  }

  async #pump(direction: Place['direction'], from: Socket, to: Socket): Promise<void> {
    try {
      for await (const piece of from) await this.#pass(direction, to, piece);
    } catch {
      // Reset by its peer or by us.
    }
    if (!this.#isFrozen) to.end();
  }

  async #pass(direction: Place['direction'], to: Socket, piece: Buffer): Promise<void> {
    if (this.#isFrozen) return;
    if (direction === 'request' && this.#now !== 'request') this.#fault = this.#proxy.begin();
    const isFirst = this.#now !== direction;
    this.#now = direction;
    const fault = this.#fault;
    switch (fault?.kind) {
      case 'cut':
      case 'half-open':
        if (fault.direction !== direction) break;
        return this.#breakOff(to, piece, fault);
      case 'truncated':
      case 'answer-lost':
        if (direction === 'request') break;
        return this.#breakOff(to, piece, fault);
      case 'slow':
        if (isFirst && direction === 'request') this.#proxy.strike();
        return passSlowly(to, piece, fault.bytesPerSecond);
      case 'held':
        if (isFirst && direction === fault.direction) await this.#hold(fault);
        break;
    }
    await write(to, piece);
  }

  async #breakOff(
    to: Socket,
    piece: Buffer,
    fault: Exclude<Fault, { kind: 'slow' | 'held' }>,
  ): Promise<void> {
    this.#proxy.strike();
    this.#isFrozen = true;
    if (fault.kind === 'answer-lost') return this.destroy();
    await write(to, piece.subarray(0, Math.min(fault.afterBytes, piece.length - 1)));
    if (fault.kind === 'truncated') {
      this.#client.end();
      this.#server.destroy();
    } else if (fault.kind === 'cut') {
      this.#client.resetAndDestroy();
      this.#server.resetAndDestroy();
    }
  }

  /** A client that disconnects meanwhile changes nothing: its bytes still arrive. */
  async #hold({ behind, maxMs }: Extract<Fault, { kind: 'held' }>): Promise<void> {
    this.#proxy.strike();
    const enough = this.#proxy.exchanges + behind;
    for (let heldMs = 0; heldMs < maxMs; heldMs += HOLD_POLL_MS) {
      if (this.#proxy.exchanges >= enough || this.#server.destroyed) return;
      await sleep(HOLD_POLL_MS);
    }
  }
}

async function passSlowly(to: Socket, piece: Buffer, bytesPerSecond: number): Promise<void> {
  const slice = Math.max(1, Math.floor((bytesPerSecond * SLICE_MS) / 1_000));
  for (let at = 0; at < piece.length && !to.destroyed; at += slice) {
    await sleep(SLICE_MS);
    await write(to, piece.subarray(at, at + slice));
  }
}

/** Settles when the bytes are with the system, or cannot be any more. */
function write(to: Socket, bytes: Buffer): Promise<void> {
  return new Promise((resolve) => {
    to.write(bytes, () => resolve());
  });
}

async function waitForClose(socket: Socket): Promise<void> {
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
}
