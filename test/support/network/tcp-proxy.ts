// A TCP proxy that simulates network faults. It does not parse HTTP: it counts the bytes of a client up to
// the server's next bytes as a request, the bytes back as the answer, and both as one exchange. The
// caller's `weather` function chooses the fault of each exchange.
import { once } from 'node:events';
import { createServer, type Server, type Socket, connect as tcpConnect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** The point of a fault: `afterBytes` bytes pass first, at most the first piece without its last byte. */
interface Place {
  direction: 'request' | 'answer';
  afterBytes: number;
}

/** What can happen to one exchange. */
export type Fault =
  /** Resets both connections. */
  | ({ kind: 'cut' } & Place)
  /** Passes nothing more, not even the end: each side believes that the other is connected. */
  | ({ kind: 'half-open' } & Place)
  | { kind: 'slow'; bytesPerSecond: number }
  /** Delays the request or the answer until `behind` later exchanges have started, at most `maxMs`. */
  | { kind: 'held'; direction: Place['direction']; behind: number; maxMs: number }
  /** Ends the answer with a proper end after `afterBytes` bytes, limited as in `Place`. */
  | { kind: 'truncated'; afterBytes: number }
  /** Closes the connection before the client gets a byte of the answer. */
  | { kind: 'answer-lost' };

/** Called at the start of each exchange; undefined: no fault. */
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

  /** Number of faults that took effect. */
  get struck(): number {
    return this.#struck;
  }

  /** Number of exchanges that started. */
  get exchanges(): number {
    return this.#exchanges;
  }

  /** Sets the faults of later exchanges; undefined: none. */
  set weather(weather: Weather | undefined) {
    this.#weather = weather ?? CALM;
  }

  /** Called by connections at the start of an exchange. @returns its fault */
  begin(): Fault | undefined {
    this.#exchanges++;
    return this.#weather();
  }

  /** Called by connections when a fault takes effect. */
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

/** A client's connection and its counterpart to the server. */
class Connection {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #proxy: TcpProxy;
  #now: 'idle' | 'request' | 'answer' = 'idle';
  #fault: Fault | undefined;
  /** If true, the connection drops further bytes and the end. */
  #isFrozen = false;

  constructor(client: Socket, server: Socket, proxy: TcpProxy) {
    this.#client = client;
    this.#server = server;
    this.#proxy = proxy;
    // Errors already end the pumps.
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
      // The peer or this proxy reset the connection.
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

  /** The bytes still arrive if the client disconnects meanwhile. */
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

/** Resolves when the operating system has the bytes or the socket is closed. */
function write(to: Socket, bytes: Buffer): Promise<void> {
  return new Promise((resolve) => {
    to.write(bytes, () => resolve());
  });
}

async function waitForClose(socket: Socket): Promise<void> {
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
}
