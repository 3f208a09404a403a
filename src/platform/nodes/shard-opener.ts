// Opens a shard that this node has claimed: its store, its queue, and the endpoints that belong to it.
import { isDeepStrictEqual } from 'node:util';
import { type ResumableClock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { OpenShard } from '../../cluster/local-shards.ts';
import type { LiveEndpoint } from '../../control/endpoints/endpoint-records.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Queue } from '../../queue/queue.ts';
import type { ShardedQueues } from '../../queue/queues.ts';
import type { PostgresTarget } from '../../store/postgres/connection-url.ts';
import { DatabaseSize, ShardLostError } from '../../store/postgres/database.ts';
import { openPostgres } from '../../store/postgres/postgres.ts';
import { logMigration } from '../../store/schema-migration.ts';
import { ENDING, type Store } from '../../store/store.ts';
import type { StoreLimits } from '../platform-options.ts';
import type { PostgresFailures } from '../postgres-store.ts';

export interface ShardStore {
  store: Store;
  /** Ends its connection at once: another node owns the shard. */
  abandon: () => void;
}

/** Longest wait for running requests of a shard before its store is closed, ms. */
const DRAIN_MS = 2_000;
const DRAIN_STEP_MS = 10;

export interface ShardOpenerOptions {
  clock: ResumableClock;
  log: Log;
  queues: ShardedQueues;
  endpoints: Pick<Endpoints, 'has'>;
  copies: EndpointCopies;
  /** Opens the schema of the shard, and ends the session of an earlier owner. */
  openStore: (shard: number, onLost: () => void) => Promise<ShardStore>;
  createQueue: (store: Store, shard: number) => Queue;
  /** Reads endpoints and keys again. */
  reloadControl: () => Promise<void>;
  /** Number of running requests for the endpoints of a shard; for shard 0, also those for the control plane. */
  countRequests: (shard: number) => number;
  /** The store of the shard is closed. */
  noteClosed: (shard: number) => void;
}

interface Served {
  store: Store;
  queue: Queue;
}

export class ShardOpener {
  readonly #options: ShardOpenerOptions;
  readonly #served = new Map<number, Served>();
  /** Removals of deleted endpoints by ID. */
  readonly #removals = new Map<string, Promise<boolean>>();

  constructor(options: ShardOpenerOptions) {
    this.#options = options;
  }

  async open(shard: number, onLost: () => void): Promise<OpenShard & { queue: Queue }> {
    const { copies, createQueue, openStore, queues, reloadControl } = this.#options;
    const { abandon, store } = await openStore(shard, onLost);
    let queue: Queue | undefined;
    try {
      // After the shard belongs to this node: all of its endpoints are in the control plane now, or deleted.
      await reloadControl();
      const deleted = await copies.add(shard, store);
      queue = createQueue(store, shard);
      const served = { store, queue };
      await queue.start();
      this.#served.set(shard, served);
      queues.add(shard, queue);
      for (const id of deleted) void this.removeEndpoint(shard, id);
      return { queue, abandon, close: () => this.#close(shard, served) };
    } catch (error) {
      copies.remove(shard);
      // Its sweeper may run already.
      await queue?.close().catch(() => {});
      await store.close().catch(() => {});
      this.#options.noteClosed(shard);
      throw error;
    }
  }

  /**
   * Removes a deleted endpoint with its jobs from its shard. @returns false if it failed or was interrupted, if another
   * node serves the shard, or if the endpoint exists as far as this node knows
   */
  removeEndpoint(shard: number, id: string): Promise<boolean> {
    const running = this.#removals.get(id) ?? this.#removeEndpoint(shard, id);
    this.#removals.set(id, running);
    return running.finally(() => this.#removals.delete(id));
  }

  async #removeEndpoint(shard: number, id: string): Promise<boolean> {
    const { endpoints, log } = this.#options;
    const served = this.#served.get(shard);
    // A call that arrives late must not take the jobs of an endpoint that was declared again.
    if (!served || endpoints.has(id)) return false;
    const { queue, store } = served;
    try {
      await store.write((tx) => {
        const endpoint = tx.endpoint(id);
        if (endpoint) tx.putEndpoint({ ...endpoint, deleted: true });
      }, ENDING);
      if (!(await queue.removal.drop(id, new AbortController().signal))) return false;
      await store.write((tx) => tx.removeEndpoint(id), ENDING);
      queue.removal.forget(id);
      return true;
    } catch (error) {
      log.warn(
        { err: error, endpoint: id, shard },
        'removing a deleted endpoint from its shard failed',
      );
      return false;
    }
  }

  /** Open waits are answered with the current state; requests under way may end. */
  async #close(shard: number, { queue, store }: Served): Promise<void> {
    const { clock, copies, countRequests, noteClosed, queues } = this.#options;
    try {
      await queue.close();
      const until = clock.monotonic() + DRAIN_MS;
      while (countRequests(shard) > 0 && clock.monotonic() < until) {
        await sleep(clock, DRAIN_STEP_MS);
      }
    } finally {
      this.#served.delete(shard);
      copies.remove(shard);
      queues.remove(shard);
      await store.close().finally(() => noteClosed(shard));
    }
  }
}

/**
 * Longest time of a statement, ms. A connection on which an answer is late ends 2 s after that: calls on a half-open one
 * must not wait longer than for the takeover of a dead node.
 */
const MAX_STATEMENT_MS = 8_000;
/** Longest time to connect, for the same reason, ms. */
const MAX_CONNECT_MS = 3_000;

export interface ShardStoreOptions {
  target: PostgresTarget;
  limits: StoreLimits;
  shard: number;
  failures: PostgresFailures;
  /** Whether the shard still belongs to this node, after its connection was lost. */
  isOwner: () => Promise<boolean>;
  onLost: () => void;
  log: Log;
}

/** Ends the session of an earlier owner. @throws the error of pg or the system */
export async function openShardStore(
  options: ShardStoreOptions,
): Promise<ShardStore & { size: DatabaseSize }> {
  const { failures, isOwner, limits, log, onLost, shard, target } = options;
  const schema = shard === 0 ? target.schema : `${target.schema}_${shard}`;
  const { driver, store } = await openPostgres({
    ...boundTimes(limits),
    target: { ...target, schema },
    takeOver: true,
    mayReturn: isOwner,
    onFailure: failures.note,
    onMigrated: (migration) => logMigration(log.child({ shard }), migration),
    onReconnect: failures.end,
    onLost: (error) => {
      log.warn({ err: error, shard }, 'database of a shard lost');
      onLost();
    },
  });
  const abandon = () => driver.abandon(new ShardLostError(schema));
  return { store, abandon, size: new DatabaseSize(driver) };
}

/** The limits of the connections that a node needs to serve a shard. */
export function boundTimes(limits: StoreLimits) {
  const { connectTimeoutMs = MAX_CONNECT_MS, statementTimeoutMs = MAX_STATEMENT_MS } = limits;
  return {
    ...limits,
    connectTimeoutMs: Math.min(connectTimeoutMs, MAX_CONNECT_MS),
    statementTimeoutMs: Math.min(statementTimeoutMs, MAX_STATEMENT_MS),
  };
}

export interface EndpointCopiesOptions {
  endpoints: Pick<Endpoints, 'all' | 'find' | 'onChange'>;
  log: Log;
}

/** Keeps the endpoints of a shard in its store, where its queue finds them. The originals are in the control plane: in shard 0. */
export class EndpointCopies {
  readonly #options: EndpointCopiesOptions;
  /** Of the shards that this node serves or opens. */
  readonly #stores = new Map<number, Store>();
  readonly #writing = new Set<Promise<void>>();
  /** Endpoints whose last change could not be written. */
  readonly #failed = new Set<string>();

  constructor(options: EndpointCopiesOptions) {
    this.#options = options;
    options.endpoints.onChange(({ id, kind }) => {
      if (kind === 'put') this.#copy(id);
    });
  }

  /**
   * Brings the rows of the shard up to date; each change is written from now on.
   * @returns endpoints that no longer exist
   */
  async add(shard: number, store: Store): Promise<string[]> {
    if (shard === 0) return [];
    // First: what changes during the read must not be missed.
    this.#stores.set(shard, store);
    const stored = new Map(
      (await store.read((tx) => tx.endpoints())).map((endpoint) => [endpoint.id, endpoint]),
    );
    // After the read: an endpoint of the shard that is new since then must not look deleted.
    const all = this.#options.endpoints.all().filter((endpoint) => endpoint.shard === shard);
    const isSame = (endpoint: LiveEndpoint) => {
      const known = stored.get(endpoint.id);
      if (!known || known.deleted) return false;
      const { createdAt, deployment, id, settings, userId } = known;
      return isDeepStrictEqual({ createdAt, deployment, id, settings, shard, userId }, endpoint);
    };
    const changed = all.filter((endpoint) => !isSame(endpoint));
    if (changed.length > 0) {
      await store.write((tx) => {
        for (const endpoint of changed) tx.putEndpoint({ ...endpoint, deleted: false });
      }, ENDING);
    }
    const ids = new Set(all.map(({ id }) => id));
    return [...stored.keys()].filter((id) => !ids.has(id));
  }

  /** The store of the shard is about to close. */
  remove(shard: number): void {
    this.#stores.delete(shard);
  }

  /** Resolves when all changes so far are written, or have failed. */
  async settled(): Promise<void> {
    await Promise.all(this.#writing);
  }

  /** Writes what could not be written. */
  repeat(): void {
    for (const id of this.#failed) this.#copy(id);
  }

  #copy(id: string): void {
    const { endpoints, log } = this.#options;
    this.#failed.delete(id);
    const endpoint = endpoints.find(id);
    const store = endpoint && this.#stores.get(endpoint.shard);
    if (!store) return;
    const put = { ...endpoint, deleted: false };
    const writing = store
      .write((tx) => tx.putEndpoint(put), ENDING)
      .catch((error: unknown) => {
        this.#failed.add(id);
        log.warn({ err: error, endpoint: id }, 'writing an endpoint to its shard failed, retrying');
      });
    this.#writing.add(writing);
    void writing.finally(() => this.#writing.delete(writing));
  }
}
