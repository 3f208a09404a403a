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
  /** Environment of the last node, besides that of the tests. */
  lastEnv?: Record<string, string>;
}

export class NodeProcesses {
  readonly all: readonly PlatformProcess[];
  readonly #folder: string;

  private constructor(all: readonly PlatformProcess[], folder: string) {
    this.all = all;
    this.#folder = folder;
  }

  static async start({ args = [], count, endpoints, lastEnv, shards, store }: NodesOptions) {
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
    for (let index = 0; index < count; index++) {
      const url = `http://127.0.0.1:${await findFreePort()}`;
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
      all.push(
        await PlatformProcess.start({
          ...{ endpoints, keyFile, args: [...node, ...rest, ...args] },
          ...(index === count - 1 && lastEnv && { env: lastEnv }),
        }),
      );
    }
    return new NodeProcesses(all, folder);
  }

  at(index: number): PlatformProcess {
    const node = this.all[index];
    if (!node) throw new Error(`there is no node ${index}`);
    return node;
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map((node) => node.close()));
    await rm(this.#folder, { recursive: true, force: true });
  }
}
