// Starts several nodes, each a real `millrace serve`, on one Postgres database.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort } from './network/free-port.ts';
import { PlatformProcess } from './processes.ts';

export interface NodesOptions {
  /** URL of the database. A function: of the way of each node to it. */
  store: string | ((index: number) => string);
  /** Number of nodes. */
  count: number;
  shards: number;
  endpoints: string[];
  args?: string[];
  /** The nodes have gRPC ports, and tell workers their URLs. */
  advertise?: boolean;
  /** Environment of the last node, besides that of the tests. */
  lastEnv?: Record<string, string>;
}

export class NodeProcesses {
  readonly all: readonly PlatformProcess[];
  /** At which the nodes reach each other. */
  readonly urls: readonly string[];
  readonly #folder: string;

  private constructor(all: readonly PlatformProcess[], urls: string[], folder: string) {
    this.all = all;
    this.urls = urls;
    this.#folder = folder;
  }

  static async start(options: NodesOptions) {
    const { advertise = false, args = [], count, endpoints, lastEnv, shards, store } = options;
    const folder = await mkdtemp(join(tmpdir(), 'millrace-nodes-'));
    const file = async (name: string, text: string) => {
      await writeFile(join(folder, name), text, { mode: 0o600 });
      return join(folder, name);
    };
    const secret = await file('node-secret', `${'s'.repeat(40)}\n`);
    // The first node makes both files.
    const keyFile = join(folder, 'keys');
    const webhookSecrets = join(folder, 'webhook-secrets');
    const all: PlatformProcess[] = [];
    const urls: string[] = [];
    for (let index = 0; index < count; index++) {
      const url = `http://127.0.0.1:${await findFreePort()}`;
      urls.push(url);
      const database = typeof store === 'string' ? store : store(index);
      const node = ['--store', database, '--node-url', url, '--node-secret-file', secret];
      const rest = [
        '--engine',
        'none',
        '--shards',
        String(shards),
        '--webhook-secret-file',
        webhookSecrets,
      ];
      const told = advertise ? await chooseAdvertised() : [];
      all.push(
        await PlatformProcess.start({
          ...{ endpoints, keyFile, args: [...node, ...rest, ...told, ...args] },
          ...(index === count - 1 && lastEnv && { env: lastEnv }),
        }),
      );
    }
    return new NodeProcesses(all, urls, folder);
  }

  at(index: number): PlatformProcess {
    const node = this.all[index];
    if (!node) throw new Error(`there is no node ${index}`);
    return node;
  }

  /** gRPC URL of a node, as it has printed it. */
  async grpcUrlOf(index: number): Promise<string> {
    return this.at(index).process.find(/(grpc:\/\/127\.0\.0\.1:\d+)/);
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map((node) => node.close()));
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Ports that are known before the start, and their URLs. */
async function chooseAdvertised(): Promise<string[]> {
  const [port, grpcPort] = [await findFreePort(), await findFreePort()].map(String);
  return [
    ...['--port', `${port}`, '--advertise-url', `http://127.0.0.1:${port}`],
    ...['--grpc-port', `${grpcPort}`, '--advertise-grpc-url', `grpc://127.0.0.1:${grpcPort}`],
  ];
}
