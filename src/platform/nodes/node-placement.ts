// Finds the node that serves a shard or an endpoint: from the view of the cluster, and from the shards that are open here.
import { EventEmitter, once, setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OwnerNode, Placement } from '../../api/forwarding/forwarding-options.ts';
import type { ClusterView } from '../../cluster/cluster-rows.ts';
import type { ServedShards } from '../../cluster/local-shards.ts';

/** Unknown keys and endpoints cost the database no more than one read in this time, ms. */
const LOOK_UP_EVERY_MS = 200;

export interface Cluster {
  readonly id: string;
  readonly view: ClusterView;
  readonly isServing: boolean;
}

export class ShardOwners {
  readonly cluster: Cluster;
  readonly #served: Pick<ServedShards, 'has'>;

  constructor(cluster: Cluster, served: Pick<ServedShards, 'has'>) {
    this.cluster = cluster;
    this.#served = served;
  }

  find(shard: number): OwnerNode {
    const { id: me, isServing, view } = this.cluster;
    if (this.#served.has(shard)) return { kind: isServing ? 'here' : 'none' };
    const owner = view.shards.find(({ id }) => id === shard)?.owner;
    const node = view.nodes.find(({ id, isLive }) => id === owner && isLive);
    if (!node || node.id === me) return { kind: 'none' };
    return { kind: 'node', url: node.url };
  }

  /** The owner of shard 0 leads. */
  readonly findLeader = (): OwnerNode => this.find(0);
}

export interface NodePlacementOptions {
  /** Undefined for an unknown endpoint: the leader answers for it. */
  shardOf: (endpointId: string) => number | undefined;
  owners: ShardOwners;
  /** Reads the view, and what the leader has changed. */
  reload: () => Promise<void>;
}

export class NodePlacement implements Placement {
  readonly #options: NodePlacementOptions;
  readonly #changes = new EventEmitter();
  #lookingUp: Promise<void> | undefined;
  #lookedUpAt = Number.NEGATIVE_INFINITY;
  /** Requests under way here, by shard. */
  readonly #requests = new Map<number, number>();

  constructor(options: NodePlacementOptions) {
    this.#options = options;
    // Every request that waits for an owner listens.
    setMaxListeners(0, this.#changes);
  }

  find(endpointId: string | undefined): OwnerNode {
    const { owners, shardOf } = this.#options;
    return owners.find((endpointId === undefined ? 0 : shardOf(endpointId)) ?? 0);
  }

  isDead(url: string): boolean {
    const known = this.#options.owners.cluster.view.nodes.filter((node) => node.url === url);
    return known.length > 0 && known.every(({ isLive }) => !isLive);
  }

  begin(endpointId: string | undefined): () => void {
    const shard = endpointId === undefined ? 0 : this.#options.shardOf(endpointId);
    if (shard === undefined) return () => {};
    this.#requests.set(shard, this.countRequests(shard) + 1);
    return () => this.#requests.set(shard, this.countRequests(shard) - 1);
  }

  countRequests(shard: number): number {
    return this.#requests.get(shard) ?? 0;
  }

  async refresh(): Promise<void> {
    await this.#options.reload();
    this.noteChange();
  }

  /** Never rejects: an unknown name then stays unknown. */
  lookUp(): Promise<void> {
    this.#lookingUp ??= this.#lookUp();
    return this.#lookingUp;
  }

  async #lookUp(): Promise<void> {
    await sleep(Math.max(0, this.#lookedUpAt + LOOK_UP_EVERY_MS - performance.now()));
    // Those who asked meanwhile share the read; later ones need another.
    this.#lookingUp = undefined;
    this.#lookedUpAt = performance.now();
    await this.refresh().catch(() => {});
  }

  async untilChange(signal: AbortSignal): Promise<void> {
    await once(this.#changes, 'change', { signal }).catch(() => {});
  }

  /** The view, the open shards or the endpoints have changed. */
  noteChange(): void {
    this.#changes.emit('change');
  }
}
