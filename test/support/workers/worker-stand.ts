// Simulated workers of load-balancing endpoints: real HTTP servers on this machine, and the list of their
// addresses.
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import type { TargetSource, WorkerTarget } from '../../../src/control/balancing/balanced-worker.ts';

export class TargetList implements TargetSource {
  readonly #targets = new Map<string, WorkerTarget>();
  readonly #listeners = new Set<(podId: string) => void>();

  put(target: WorkerTarget): void {
    this.#targets.set(target.podId, target);
    this.#notify(target.podId);
  }

  remove(podId: string): void {
    this.#targets.delete(podId);
    this.#notify(podId);
  }

  all(): WorkerTarget[] {
    return [...this.#targets.values()];
  }

  find(podId: string): WorkerTarget | undefined {
    return this.#targets.get(podId);
  }

  onChange(listener: (podId: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #notify(podId: string): void {
    for (const listener of this.#listeners) listener(podId);
  }
}

export interface StandingWorker {
  podId: string;
  target: WorkerTarget;
  server: Server;
  /** Status of the next answers to pings; undefined: no answer. */
  ping: number | undefined;
  pings: number;
  /** Resets all connections and accepts no more. */
  die: () => Promise<void>;
}

export interface WorkerStandOptions {
  endpointId: string;
  podId?: string;
  /** Default: answers 200 without a body. */
  listener?: RequestListener;
}

/** Starts a server that answers pings with 200; the test closes it at its end. */
export async function startWorker({
  endpointId,
  podId = 'pod_a',
  listener = (_request, response) => response.end(),
}: WorkerStandOptions): Promise<StandingWorker> {
  const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    if (request.url !== '/ping') return listener(request, response);
    worker.pings++;
    if (worker.ping !== undefined) response.writeHead(worker.ping).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const worker: StandingWorker = {
    ...{ podId, server, ping: 200, pings: 0 },
    target: { endpointId, node: undefined, podId, ip: '127.0.0.1', port, isLeaving: false },
    async die() {
      if (!server.listening) return;
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
  onTestFinished(worker.die);
  return worker;
}
