// A load balancer for connections, as of Kubernetes or a cloud: it sends each new connection to a platform whose
// `/readyz` answers 200, and leaves open ones where they are.
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const CHECK_MS = 50;

export class TcpBalancer {
  readonly #server: Server;
  readonly #targets: readonly string[];
  readonly #sockets = new Set<Socket>();
  readonly #stopped = new AbortController();
  #ready: readonly string[] = [];
  #turn = 0;
  #port = 0;

  private constructor(targets: readonly string[]) {
    this.#targets = targets;
    this.#server = createServer((client) => this.#join(client));
  }

  /** `targets`: URLs of platforms. */
  static async start(targets: readonly string[]): Promise<TcpBalancer> {
    const balancer = new TcpBalancer(targets);
    await balancer.#check();
    void balancer.#keepChecking();
    balancer.#server.listen(0, '127.0.0.1');
    await once(balancer.#server, 'listening');
    const address = balancer.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    balancer.#port = address.port;
    return balancer;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** The targets that get new connections. */
  get ready(): readonly string[] {
    return this.#ready;
  }

  async close(): Promise<void> {
    this.#stopped.abort();
    const hasClosed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await hasClosed;
  }

  async #keepChecking(): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      await this.#check();
      await sleep(CHECK_MS);
    }
  }

  async #check(): Promise<void> {
    const statuses = await Promise.all(
      this.#targets.map((url) =>
        fetch(`${url}/readyz`).then(
          async (answer) => {
            await answer.arrayBuffer();
            return answer.status;
          },
          () => undefined,
        ),
      ),
    );
    this.#ready = this.#targets.filter((_, index) => statuses[index] === 200);
  }

  #join(client: Socket): void {
    const target = this.#ready[this.#turn++ % Math.max(1, this.#ready.length)];
    if (target === undefined) {
      client.destroy();
      return;
    }
    const { hostname, port } = new URL(target);
    const platform = connect({ host: hostname, port: Number(port) });
    for (const socket of [client, platform]) {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    }
    // An end passes on behind the data; a failure at once.
    client.on('error', () => platform.destroy());
    platform.on('error', () => client.destroy());
    client.pipe(platform).pipe(client);
  }
}
