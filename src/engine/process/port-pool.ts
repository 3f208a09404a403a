// Assigns free ports of this machine to containers, each to one container only.
import { createServer } from 'node:net';
import type { ContainerPort, PublicPort } from '../engine.ts';

const PORT_ADDRESS = '127.0.0.1';
/** Ports offered by the system that may be rejected before giving up. */
const MAX_OFFERS = 100;

export interface GivenPort extends PublicPort {
  public: number;
}

export class PortPool {
  /** A container with a port may not listen on it yet. */
  readonly #assigned = new Set<number>();

  /**
   * Assigns one port for each private port, the same for all its protocols; as `before` if it is
   * still free.
   */
  async assign(
    ports: readonly ContainerPort[],
    before: readonly GivenPort[],
  ): Promise<GivenPort[]> {
    const given: GivenPort[] = [];
    for (const { private: own, protocol } of ports) {
      const same = given.find((port) => port.private === own)?.public;
      const known = before.find((port) => port.private === own)?.public;
      const found = same ?? (await this.#take(known)) ?? (await this.#takeAny());
      given.push({ private: own, public: found, type: protocol, ip: PORT_ADDRESS });
    }
    return given;
  }

  /** Marks the ports of a running container, which another platform process may have started. */
  reserve(ports: readonly GivenPort[]): void {
    for (const port of ports) this.#assigned.add(port.public);
  }

  release(ports: readonly GivenPort[]): void {
    for (const port of ports) this.#assigned.delete(port.public);
  }

  async #takeAny(): Promise<number> {
    for (let offers = 0; offers < MAX_OFFERS; offers++) {
      const port = await this.#take(0);
      if (port !== undefined) return port;
    }
    throw new Error('no free port');
  }

  async #take(wanted: number | undefined): Promise<number | undefined> {
    if (wanted === undefined) return undefined;
    const port = await tryPort(wanted);
    if (port === undefined || this.#assigned.has(port)) return undefined;
    this.#assigned.add(port);
    return port;
  }
}

/** Listens for a moment; 0 selects any port. Undefined if the port is in use. */
function tryPort(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen(port, PORT_ADDRESS, () => {
      const address = server.address();
      const found = typeof address === 'object' && address ? address.port : undefined;
      server.close(() => resolve(found));
    });
  });
}
