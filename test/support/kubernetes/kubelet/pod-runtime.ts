// How the kubelet stand-in gives a pod its network and file system. By default pods share those of this machine.

import { once } from 'node:events';
import { mkdir, symlink } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { findFreePort } from '../../network/free-port.ts';
import type { Mount } from './pod-needs.ts';
import type { Pod } from './pod-schema.ts';

export interface PodRuntime {
  open(pod: Pod): Promise<PodPlace>;
}

export interface PodPlace {
  readonly ip: string;
  readonly env: Readonly<Record<string, string>>;
  /** The command that runs the container's command there. */
  enter(
    command: readonly string[],
    terms: { mounts: readonly Mount[]; isReadOnly: boolean },
  ): string[];
  close(): void;
}

/** Programs see volumes below their working directory, and learn their ports from variables. */
export const HOST_RUNTIME: PodRuntime = {
  async open({ spec }) {
    const [{ ports }] = spec.containers;
    const own = ports.filter(({ protocol }) => protocol === 'TCP');
    const relays = await PortRelays.open(own.map(({ containerPort }) => containerPort));
    return {
      ip: relays.ip,
      env: relays.env,
      enter: (command) => [...command],
      close: () => relays.close(),
    };
  },
};

export async function linkMounts(disk: string, mounts: readonly Mount[]): Promise<void> {
  for (const { path: mountPath, source } of mounts) {
    const path = join(disk, mountPath);
    await mkdir(dirname(path), { recursive: true });
    await symlink(source, path);
  }
}

let lastAddress = 0;

/** All of 127.0.0.0/8 is this machine. */
function chooseAddress(): string {
  lastAddress += 1;
  // So that test processes that run at the same time seldom collide.
  const block = 1 + (process.pid % 250);
  return `127.${block}.${(lastAddress >> 8) % 256}.${1 + (lastAddress % 254)}`;
}

export class PortRelays {
  readonly ip: string;
  /** `PORT` for the first one, `MILLRACE_PORT_<port>` for each. */
  readonly env: Record<string, string> = {};
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();

  private constructor(ip: string) {
    this.ip = ip;
  }

  static async open(ports: readonly number[]): Promise<PortRelays> {
    const relays = new PortRelays(ports.length === 0 ? '127.0.0.1' : chooseAddress());
    for (const port of ports) await relays.#relay(port);
    return relays;
  }

  async #relay(port: number): Promise<void> {
    const target = await findFreePort();
    this.env['PORT'] ??= String(target);
    this.env[`MILLRACE_PORT_${port}`] = String(target);
    const server = createServer((socket) => {
      const inner = connect(target, '127.0.0.1');
      for (const each of [socket, inner]) {
        this.#sockets.add(each);
        each.on('error', () => {});
        each.once('close', () => this.#sockets.delete(each));
      }
      socket.once('close', () => inner.destroy());
      inner.once('close', () => socket.destroy());
      socket.pipe(inner).pipe(socket);
    });
    server.listen(port, this.ip);
    await once(server, 'listening');
    this.#servers.push(server);
  }

  close(): void {
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
