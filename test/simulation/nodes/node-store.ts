// The store of one shard on one simulated node: the real driver and the real live jobs on a simulated server. Reports
// where memory differs from rows that are loaded anew.
import { isDeepStrictEqual } from 'node:util';
import { boundTimes } from '../../../src/platform/nodes/shard-opener.ts';
import type { CachedJobsOptions } from '../../../src/store/live/cached-jobs.ts';
import { LiveJobs } from '../../../src/store/live/live-jobs.ts';
import { ShardLostError } from '../../../src/store/postgres/database.ts';
import { PostgresDriver } from '../../../src/store/postgres/postgres.ts';
import type { SessionOptions } from '../../../src/store/postgres/session.ts';
import { type MemoryState, type SqlDriver, SqlStore } from '../../../src/store/sql/sql-store.ts';
import type { Step, Store } from '../../../src/store/store.ts';
import type { MemoryTables, MemoryTablesOptions } from '../memory-tables.ts';
import { type OnChange, watchTransaction } from '../watched-store.ts';
import { nameSchema, nameStoreLock, TARGET } from './database.ts';
import { createRemoteTables, writeRemotely } from './remote-tables.ts';
import type { SimulatedPostgres } from './simulated-postgres.ts';

/** The default of `millrace serve`, ms. */
const STATEMENT_MS = 30_000;

export interface NodeStoreOptions {
  postgres: SimulatedPostgres;
  node: string;
  shard: number;
  endpointIds: readonly string[];
  live: CachedJobsOptions;
  tables: MemoryTablesOptions;
  connect: NonNullable<SessionOptions['connect']>;
  isOwner: () => Promise<boolean>;
  onLost: () => void;
  /** Called with each change of a job that commits, in the order of the commits. */
  onChange: OnChange;
}

export interface NodeStore {
  store: Store;
  abandon: () => void;
}

/** As `openShardStore`. */
export async function openNodeStore(options: NodeStoreOptions): Promise<NodeStore> {
  const { connect, isOwner, onLost, postgres, shard } = options;
  const schema = nameSchema(shard);
  const tables = createRemoteTables(postgres.calls, options.tables);
  const live = new LiveJobs(tables, options.live);
  const memory = new ComparedMemory(live, options, schema);
  const driver = await PostgresDriver.open(
    {
      ...{ target: { ...TARGET, schema }, takeOver: true, mayReturn: isOwner, connect },
      ...boundTimes({ statementTimeoutMs: STATEMENT_MS }),
      onLost,
    },
    memory,
  );
  memory.isUsed = () => driver.fault === undefined;
  const noted = new NotedChanges(driver, options, schema);
  const store = new SqlStore({ driver: noted, live, tables });
  const abandon = () => driver.abandon(new ShardLostError(schema));
  return { store: noted.watch(store), abandon };
}

/** Reports the changes of jobs. The server keeps them with the transaction: an answer may be lost, or never be sent. */
class NotedChanges implements SqlDriver {
  readonly #driver: SqlDriver;
  readonly #options: NodeStoreOptions;
  readonly #schema: string;
  /** Of the operation that runs. */
  #changes: Parameters<OnChange>[] = [];

  constructor(driver: SqlDriver, options: NodeStoreOptions, schema: string) {
    this.#driver = driver;
    this.#options = options;
    this.#schema = schema;
  }

  watch(store: Store): Store {
    return {
      read: (operation) => store.read(operation),
      reclaim: (pages) => store.reclaim(pages),
      close: () => store.close(),
      write: (operation) =>
        store.write((tx) => {
          this.#changes = [];
          return operation(watchTransaction(tx, (...change) => this.#changes.push(change)));
        }),
    };
  }

  write<T>(start: () => Step<T>): Promise<T> {
    return this.#driver.write(() => this.#run(start()));
  }

  *#run<T>(steps: Step<T>): Step<T> {
    const { onChange, postgres } = this.#options;
    const { notes } = postgres.schema(this.#schema);
    this.#changes = [];
    const result = yield* steps;
    const changes = this.#changes;
    this.#changes = [];
    const note = () => {
      for (const change of changes) onChange(...change);
    };
    if (changes.length > 0) yield* writeRemotely(postgres.calls, () => notes.push(note));
    return result;
  }

  read<T>(start: () => Step<T>): Promise<T> {
    return this.#driver.read(start);
  }

  reclaim(pages: number): Promise<boolean> {
    return this.#driver.reclaim(pages);
  }

  close(): Promise<void> {
    return this.#driver.close();
  }
}

/** The live jobs; after each transaction they equal the rows. */
class ComparedMemory implements MemoryState {
  isUsed: () => boolean = () => true;
  readonly #live: LiveJobs;
  readonly #options: NodeStoreOptions;
  readonly #schema: string;

  constructor(live: LiveJobs, options: NodeStoreOptions, schema: string) {
    this.#live = live;
    this.#options = options;
    this.#schema = schema;
  }

  forget(): void {
    this.#live.forget();
  }

  write(): Step<void> {
    return this.#live.write();
  }

  settle(): void {
    this.#live.settle();
    // A store that closes during an outage never learns the fate of its last commit, and nobody reads its memory.
    if (!this.isUsed()) return;
    const { endpointIds, node, postgres } = this.#options;
    const { tables } = postgres.schema(this.#schema);
    // Another node may have written since.
    if (postgres.locks.get(nameStoreLock(this.#schema))?.node !== node) return;
    const different = tables.readCommitted(() => findDifference(this.#live, tables, endpointIds));
    if (different === undefined) return;
    postgres.complain(`${node}: memory differs from the rows of ${different}`);
  }
}

function findDifference(
  live: LiveJobs,
  tables: MemoryTables,
  endpointIds: readonly string[],
): string | undefined {
  for (const endpointId of endpointIds) {
    const endpoint = live.endpoint(endpointId);
    if (endpoint && !isDeepStrictEqual(endpoint, finish(tables.endpoint(endpointId)))) {
      return `endpoint ${endpointId}`;
    }
    const listing = { endpointId, status: undefined, before: undefined, limit: 1_000 };
    for (const { id } of finish(tables.jobs(listing))) {
      const job = live.job({ endpointId, id });
      if (job === 'unknown') continue;
      const row = finish(tables.job({ endpointId, id }));
      if (job !== row && !isDeepStrictEqual(job, row)) return `job ${id}`;
    }
  }
  return undefined;
}

function finish<T>(steps: Step<T>): T {
  const step = steps.next();
  if (!step.done) throw new Error(`unexpected query: ${step.value.sql}`);
  return step.value;
}
