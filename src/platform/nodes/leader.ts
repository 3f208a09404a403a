// The part of a platform that only the owner of shard 0 has: it declares endpoints, creates the first keys, and removes
// deleted endpoints from all shards.
import type { EndpointJobs } from '../../control/endpoints/endpoint-deletion.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { Queue } from '../../queue/queue.ts';
import type { Store } from '../../store/store.ts';
import type { Compute } from '../compute/compute.ts';
import { type PlatformKeys, prepareKeys } from '../files/key-file.ts';

export interface LeaderOptions {
  store: Store;
  keys: Keys;
  compute: Compute;
  keyFile: string | undefined;
  /** Endpoints to declare. */
  names: readonly string[];
  declare: (endpointId: string) => Promise<void>;
  /** Removes an endpoint's jobs and rows from its shard, on whichever node that is. Rejects if it cannot now. */
  removeFromShard: (shard: number, endpointId: string, signal: AbortSignal) => Promise<boolean>;
}

export class Leader {
  readonly #options: LeaderOptions;
  #stop: (() => Promise<void>) | undefined;
  #firstKeys: PlatformKeys | undefined;

  constructor(options: LeaderOptions) {
    this.#options = options;
  }

  /** Undefined if this node has not created or read them. */
  get firstKeys(): PlatformKeys | undefined {
    return this.#firstKeys;
  }

  /**
   * `queue`: that of shard 0. `isStart`: the node has just started, and does not take over. `lost`: aborts when another
   * node leads; without it, a deletion that can never end would keep this node from leading again.
   */
  async begin(
    queue: Queue,
    { isStart, lost }: { isStart: boolean; lost: AbortSignal },
  ): Promise<void> {
    const { compute, declare, keyFile, keys, names } = this.#options;
    this.#stop = await compute.remains.startDeletion(
      this.#jobsOf(queue),
      isStart ? names : [],
      lost,
    );
    if (!isStart) return;
    for (const name of names) await declare(name);
    this.#firstKeys = await prepareKeys(keys, { endpoints: names, keyFile });
  }

  /** Another node leads from now on. */
  async end(): Promise<void> {
    await this.#stop?.();
    this.#stop = undefined;
  }

  #jobsOf(queue: Queue): EndpointJobs {
    const { removeFromShard, store } = this.#options;
    return {
      async drop(id, signal) {
        const endpoint = await store.read((tx) => tx.endpoint(id));
        const shard = endpoint?.shard ?? 0;
        return shard === 0 ? queue.removal.drop(id, signal) : removeFromShard(shard, id, signal);
      },
      forget: (id) => queue.removal.forget(id),
    };
  }
}
