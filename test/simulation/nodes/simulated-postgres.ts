// A Postgres server in a simulated world: opens sessions for processes, and dies and comes back.
import type { Session, SessionOptions } from '../../../src/store/postgres/session.ts';
import { MemoryTables, type MemoryTablesOptions } from '../memory-tables.ts';
import type { VirtualTime } from '../virtual-time.ts';
import { Backend } from './backend.ts';
import { ClusterTables } from './cluster-tables.ts';
import {
  type CommitFate,
  type Database,
  nameNodeLock,
  nameSchema,
  type Schema,
  TARGET,
} from './database.ts';
import { ServerCalls } from './remote-tables.ts';
import { type NodeNetwork, SimulatedConnection } from './simulated-connection.ts';
import type { SimulatedProcess } from './simulated-process.ts';

export interface SimulatedPostgresOptions {
  time: VirtualTime;
  random: () => number;
  shards: number;
  tables: MemoryTablesOptions;
  chooseFate: () => CommitFate;
  failsWrite: () => boolean;
  onFenced: () => void;
  complain: (fault: string) => void;
}

/** Where a connection comes from. */
export interface Client {
  process: SimulatedProcess;
  network: NodeNetwork;
}

export class SimulatedPostgres implements Database {
  readonly time: VirtualTime;
  readonly calls = new ServerCalls();
  readonly cluster: ClusterTables;
  readonly locks: Database['locks'] = new Map();
  readonly sessions = new Map<number, Backend>();
  readonly connections = new Set<SimulatedConnection>();
  readonly chooseFate: () => CommitFate;
  readonly failsWrite: () => boolean;
  readonly onFenced: () => void;
  readonly complain: (fault: string) => void;
  readonly #options: SimulatedPostgresOptions;
  readonly #schemas = new Map<string, Schema>();
  #pids = 0;
  #isUp = true;

  constructor(options: SimulatedPostgresOptions) {
    this.#options = options;
    this.time = options.time;
    this.chooseFate = options.chooseFate;
    this.failsWrite = options.failsWrite;
    this.onFenced = options.onFenced;
    this.complain = options.complain;
    this.cluster = new ClusterTables({
      now: options.time.now,
      isLocked: (id) => this.locks.has(nameNodeLock(TARGET.schema, id)),
    });
    for (let id = 0; id < options.shards; id++) {
      this.cluster.addShard(id);
      const name = nameSchema(id);
      this.#schemas.set(name, {
        ...{ name, shard: id, tables: new MemoryTables(options.tables), number: 0 },
        ...{ writer: undefined, waiting: [], notes: [] },
      });
    }
  }

  schema(name: string): Schema {
    const schema = this.#schemas.get(name);
    if (!schema) throw new Error(`schema ${name} does not exist`);
    return schema;
  }

  /** Opens a session, or fails as the network and the server do. */
  connect({ network, process }: Client, options: SessionOptions): Promise<Session> {
    const { random, time } = this.#options;
    return new Promise((resolve, reject) => {
      const waitMs = network.delay(time.now(), random);
      const { connectTimeoutMs } = options;
      if (waitMs > connectTimeoutMs) {
        process.after(connectTimeoutMs, () => reject(new Error('timeout expired')));
        return;
      }
      process.after(waitMs, () => {
        if (this.#isUp && !network.isRefused) {
          resolve(this.#open({ network, process }, options));
        } else reject(Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }));
      });
    });
  }

  /** The server dies and comes back: sessions, locks and transactions are gone, commits stay. */
  restart(downMs: number): void {
    this.#isUp = false;
    for (const connection of [...this.connections]) connection.cut();
    for (const backend of [...this.sessions.values()]) backend.end();
    this.time.after(downMs, () => {
      this.#isUp = true;
    });
  }

  #open({ network, process }: Client, { statementTimeoutMs, target }: SessionOptions): Session {
    const { random, time } = this.#options;
    const backend = new Backend({
      ...{ database: this, pid: ++this.#pids, node: process.name, statementTimeoutMs },
      schema: this.schema(target.schema),
    });
    this.sessions.set(backend.pid, backend);
    const connection: SimulatedConnection = new SimulatedConnection({
      ...{ time, random, process, network, backend, statementTimeoutMs },
      onEnd: () => this.connections.delete(connection),
    });
    this.connections.add(connection);
    return connection.session;
  }
}
