// The HTTP server as a whole: starts, and stops within a bounded time. assembly.ts adds the routes.
import { once } from 'node:events';
import { createServer as createNetServer, type Server } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { assemble } from './assembly.ts';
import { openContext } from './context.ts';
import type { Forwarder } from './forwarding/forwarder.ts';
import type { ServedRoute } from './http/guard.ts';
import { completeBounds } from './limits/bounds.ts';
import { Connections } from './limits/connections.ts';
import type { Flows } from './limits/flows.ts';
import { type KeyPair, SOCKET_OPTIONS, useCertificate } from './listener.ts';
import type { ApiServerOptions } from './server-options.ts';
import type { WorkerRoutesOptions } from './worker/worker-routes.ts';

export interface ApiServer {
  /** Bodies and responses in memory. */
  readonly flows: Pick<Flows, 'usedBytes'>;
  /** Bodies that wait for other nodes; undefined without other nodes. */
  readonly forwarder: Pick<Forwarder, 'usedBytes'> | undefined;
  /** All routes, once it has started. */
  readonly routes: readonly ServedRoute[];
  /** For other carriers of the worker link: the same queues, and the crash counter. */
  readonly workers: WorkerRoutesOptions;
  /** Listens. `nodeUrl`: for other nodes. @throws the system's error for an invalid address */
  start(): Promise<{ url: string; nodeUrl?: string }>;
  /** Listens on one more address, with the same port, after `start`. @throws the system's error */
  listenAlso(host: string): Promise<void>;
  /**
   * Answers `/readyz` with 503, and closes each connection after its response, so that load balancers and clients
   * leave. Requests are served as before. `close` follows.
   */
  announceShutdown(): void;
  /** Replaces the certificate of a server with TLS; open connections keep theirs. @throws the error of the TLS library */
  useCertificate(pair: KeyPair): void;
  /**
   * Refuses new requests with 503 and closes the queue, so that every wait is answered, here and on other
   * carriers. Part of `close`.
   */
  stop(): Promise<void>;
  /** Stops, and resolves when all connections are closed. The caller closes the store. */
  close(): Promise<void>;
}

export function createServer(options: ApiServerOptions): ApiServer {
  const { balancer, clock, host, port, queue, closeMs = 5_000 } = options;
  const bounds = completeBounds(options.bounds);
  const connections = new Connections({ bounds, clock, log: options.log });
  const complete = { ...options, bounds };
  const context = openContext(complete, connections);
  const { flows, forwarder, workers } = context;
  const { app, routes, stopSteps } = assemble(context);
  const nodeListener = forwarder?.createListener({ bounds, closeMs, routing: app.routing });
  const more: Server[] = [];
  let stopping: Promise<void> | undefined;
  const stop = async () => {
    // Their clients have had time to leave; a request from now on would get 503.
    if (connections.isShuttingDown) connections.closeIdle();
    balancer?.stop();
    await Promise.all(stopSteps.map((step) => step()));
    await queue.close();
  };
  const stopOnce = () => {
    stopping ??= stop();
    return stopping;
  };
  return {
    flows,
    forwarder,
    routes,
    workers,
    async start() {
      await app.listen({ host, port, backlog: BACKLOG });
      queue.reached();
      const url = readUrl(app, options);
      return nodeListener ? { url, nodeUrl: (await nodeListener.start()).url } : { url };
    },
    async listenAlso(address) {
      more.push(await openListener(app, address));
    },
    announceShutdown: () => connections.announceShutdown(),
    useCertificate: (pair) => useCertificate(app.server, pair),
    stop: stopOnce,
    async close() {
      try {
        await stopOnce();
      } finally {
        const cancel = clock.after(closeMs, () => connections.closeAll());
        for (const listener of more) listener.close();
        const closed = Promise.all([app.close(), nodeListener?.close()]);
        connections.closeIdle();
        await closed;
        cancel();
        connections.stop();
        forwarder?.close();
      }
    },
  };
}

/**
 * Connections that the system has accepted and the platform has not. When thousands arrive at once,
 * Node's default of 511 overflows, and the system resets some of them. More than the system's own
 * limit has no effect.
 */
const BACKLOG = 4_096;

/** Passes the connections of another address to the server, which treats them as its own. */
async function openListener(app: FastifyInstance, host: string): Promise<Server> {
  const listener = createNetServer({ allowHalfOpen: true, ...SOCKET_OPTIONS });
  listener.on('connection', (socket) => app.server.emit('connection', socket));
  listener.listen({ host, port: readPort(app), backlog: BACKLOG });
  await once(listener, 'listening');
  return listener;
}

function readPort(app: FastifyInstance): number {
  const address = app.server.address();
  if (address === null || typeof address === 'string') throw new Error('the server has no port');
  return address.port;
}

/** The server's URL for clients on this machine. */
function readUrl(app: FastifyInstance, { host, tls }: ApiServerOptions): string {
  const name = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '[::1]' : host;
  const inUrl = name.includes(':') && !name.startsWith('[') ? `[${name}]` : name;
  return `${tls ? 'https' : 'http'}://${inUrl}:${readPort(app)}`;
}
