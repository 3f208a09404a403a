// The condition of a node's database, for `/readyz` and the metrics.
import type { StoreSizes, StoreStatus } from '../../api/routes/store-status.ts';
import type { DatabaseSize } from '../../store/postgres/database-size.ts';
import type { PostgresFailures } from '../postgres-store.ts';

export interface NodeStatusOptions {
  failures: PostgresFailures;
  /** Why this node cannot serve anything now; undefined if it can. */
  findFault: () => string | undefined;
}

export class NodeStatus implements StoreStatus {
  readonly #options: NodeStatusOptions;
  readonly #sizes = new Map<number, DatabaseSize>();

  constructor(options: NodeStatusOptions) {
    this.#options = options;
  }

  get warnings(): string[] {
    return this.#options.failures.warnings;
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
