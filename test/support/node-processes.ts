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
  /** Default: none. */
  engine?: 'none' | 'process' | 'kubernetes';
  args?: string[];
  /** The nodes have gRPC ports, and tell workers their URLs. */
  advertise?: boolean;
  /** Environment of the last node, besides that of the tests. */
  lastEnv?: Record<string, string>;
}

interface NodeChoices {
  /** The program. Default: that of this checkout. */
  bin?: string;
  args?: string[];
  env?: Record<string, string>;
}

export class NodeProcesses {
  readonly all: PlatformProcess[] = [];
  /** At which the nodes reach each other. */
  readonly urls: string[] = [];
  readonly #options: NodesOptions;
  readonly #folder: string;

  private constructor(options: NodesOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
  }

  static async start(options: NodesOptions): Promise<NodeProcesses> {
    const { count, lastEnv: env } = options;
    const folder = await mkdtemp(join(tmpdir(), 'millrace-nodes-'));
    await writeFile(join(folder, 'node-secret'), `${'s'.repeat(40)}\n`, { mode: 0o600 });
    const nodes = new NodeProcesses(options, folder);
    for (let index = 0; index < count; index++) {
      await nodes.add(index === count - 1 && env ? { env } : {});
    }
    return nodes;
  }

  /** Starts one node more. Rejects with its output if it does not start. */
  async add({ args = [], bin, env = {} }: NodeChoices = {}): Promise<void> {
    const { advertise, args: ofAll = [], endpoints, engine = 'none' } = this.#options;
    const { shards, store } = this.#options;
    const url = `http://127.0.0.1:${await findFreePort()}`;
    const file = (name: string) => join(this.#folder, name);
    const options = {
      '--store': typeof store === 'string' ? store : store(this.all.length),
      '--node-url': url,
      '--node-secret-file': file('node-secret'),
      '--engine': engine,
      '--shards': String(shards),
      // The first node makes this file, and that of the keys.
      '--webhook-secret-file': file('webhook-secrets'),
    };
    const keyFile = file('keys');
    const told = advertise ? await chooseAdvertised() : [];
    const all = [...Object.entries(options).flat(), ...told, ...ofAll, ...args];
    const atOnce = { MILLRACE_SHUTDOWN_DELAY_MS: '0' };
    this.all.push(
      await PlatformProcess.start({
        ...{ bin, endpoints, keyFile, args: all, env: { ...atOnce, ...env } },
      }),
    );
    this.urls.push(url);
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
