// The condition of a node's database, for `/readyz` and the metrics.
import type { ShardCounts, StoreSizes, StoreStatus } from '../../api/metrics/store-status.ts';
import type { ServedShards } from '../../cluster/served-shards.ts';
import type { DatabaseSize } from '../../store/postgres/server.ts';
import type { PostgresFailures } from '../postgres-store.ts';

export interface NodeStatusOptions {
  failures: PostgresFailures;
  /** Why this node cannot serve anything now; undefined if it can. */
  findFault: () => string | undefined;
  served: Pick<ServedShards, 'open' | 'failing' | 'givenUp'>;
}

export class NodeStatus implements StoreStatus {
  readonly #options: NodeStatusOptions;
  readonly #sizes = new Map<number, DatabaseSize>();

  constructor(options: NodeStatusOptions) {
    this.#options = options;
  }

  get warnings(): string[] {
    const { failing, givenUp } = this.#options.served;
    return [
      ...this.#options.failures.warnings,
      ...failing.map((id) => `this node cannot open shard ${id} and tries again; see its log`),
      ...givenUp.map(
        (id) =>
          `this node could not open shard ${id} and has left it to another node; see its log, and restart it once the cause is gone`,
      ),
    ];
  }

  get shards(): ShardCounts {
    const { failing, givenUp, open } = this.#options.served;
    return { open: open.length, failing: failing.length, givenUp: givenUp.length };
  }

  get failures(): ReadonlyMap<string, number> {
    return this.#options.failures.counts;
  }

  async findFault(): Promise<string | undefined> {
    return this.#options.findFault();
  }

  noteOpen(shard: number, size: DatabaseSize): void {
    this.#sizes.set(shard, size);
  }

  /** Otherwise the closed store would stay in memory. */
  noteClosed(shard: number): void {
    this.#sizes.delete(shard);
  }

  /** Of the shards that this node serves. */
  async measure(): Promise<StoreSizes> {
    const sizes = await Promise.all([...this.#sizes.values()].map((size) => size.read()));
    const known = sizes.filter((size) => size !== undefined);
    const database = known.length > 0 ? known.reduce((sum, size) => sum + size, 0) : undefined;
    return { database, wal: undefined };
  }
}
