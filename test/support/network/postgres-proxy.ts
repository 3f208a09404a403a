// A TCP proxy before a Postgres server that can break a connection at the commit of a transaction.
import { once } from 'node:events';
import { createServer, type Server, type Socket, connect as tcpConnect } from 'node:net';

/**
 * What happens at the next commit:
 * - `before`: both connections are cut, and the server never sees it;
 * - `after`: the server commits, its answer is dropped, and both connections are cut;
 * - `frozen`: nothing passes any more, in either direction, and no side learns of it until `thaw`;
 * - `unanswered`: the server commits, then the connection is frozen.
 */
export type CommitFault = 'before' | 'after' | 'frozen' | 'unanswered';

const COMMIT = Buffer.from('commit\0');

export class PostgresProxy {
  readonly #server: Server;
  readonly #targetPort: number;
  readonly #sockets = new Set<Socket>();
  #port = 0;
  /** Reset when it has happened. */
  fault: CommitFault | undefined;
  /** Refuses new connections. */
  isClosed = false;
  /** How long later connections delay all bytes, in each direction, ms. */
  delayMs = 0;
  readonly #freezers = new Set<() => void>();
  struck = 0;
  #thaw: (() => void)[] = [];

  private constructor(targetPort: number) {
    this.#targetPort = targetPort;
    this.#server = createServer({ noDelay: true }, (client) => this.#accept(client));
  }

  static async start(targetPort: number): Promise<PostgresProxy> {
    const proxy = new PostgresProxy(targetPort);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    const address = proxy.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
    proxy.#port = address.port;
    return proxy;
  }

  /** The URL of a database with this proxy in place of its server. */
  redirect(url: string): string {
    const redirected = new URL(url);
    redirected.port = String(this.#port);
    return redirected.href;
  }

  /** Cuts all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  /** What was sent on frozen connections passes on, the commit included. */
  thaw(): void {
    for (const act of this.#thaw.splice(0)) act();
  }

  /** Nothing passes any more on the connections of now, and no side learns of it until `thaw`. */
  freeze(): void {
    for (const freeze of this.#freezers) freeze();
  }

  async close(): Promise<void> {
    const hasClosed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    await hasClosed;
  }

  #accept(client: Socket): void {
    if (this.isClosed) {
      client.resetAndDestroy();
      return;
    }
    const server = tcpConnect({ port: this.#targetPort, host: '127.0.0.1', noDelay: true });
    let state: 'open' | 'committing' | 'frozen' = 'open';
    const held: [Socket, Buffer][] = [];
    const freeze = () => {
      if (state === 'frozen') return;
      state = 'frozen';
      this.#thaw.push(() => {
        state = 'open';
        if (server.destroyed || client.destroyed) cut();
        else for (const [to, piece] of held.splice(0)) to.write(piece);
      });
    };
    this.#freezers.add(freeze);
    const { delayMs } = this;
    const pass = (to: Socket, piece: Buffer) => {
      if (delayMs === 0) to.write(piece);
      else setTimeout(() => to.write(piece), delayMs);
    };
    const cut = () => {
      client.resetAndDestroy();
      server.resetAndDestroy();
    };
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      // Also after a reset.
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        this.#freezers.delete(freeze);
        if (state !== 'frozen') cut();
      });
    }
    client.on('data', (piece) => {
      if (state === 'frozen') held.push([server, piece]);
      if (state !== 'open') return;
      const at = this.fault === undefined ? -1 : piece.indexOf(COMMIT);
      const { fault } = this;
      if (at < 0 || fault === undefined) {
        pass(server, piece);
        return;
      }
      this.fault = undefined;
      this.struck++;
      if (fault === 'before') cut();
      else if (fault === 'after') {
        state = 'committing';
        server.write(piece);
      } else {
        freeze();
        if (fault === 'frozen') held.push([server, piece]);
        else server.write(piece);
      }
    });
    let answers = '';
    server.on('data', (piece) => {
      if (state === 'open') pass(client, piece);
      else if (state === 'frozen') held.push([client, piece]);
      else if (state === 'committing') {
        answers += piece.toString('latin1');
        if (answers.includes('COMMIT\0')) cut();
      }
    });
  }
}
