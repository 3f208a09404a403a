// The part of a platform that only the owner of shard 0 has, and what other nodes ask of it.
import type { Placement } from '../../api/forwarding/placement.ts';
import { NodeCallError, type NodeClient } from '../../api/nodes/node-client.ts';
import type { EndpointJobs } from '../../control/endpoints/endpoint-deletion.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { SessionChange } from '../../control/keys/sessions.ts';
import type { Queue } from '../../queue/queue.ts';
import type { Store } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { type UseCounts, useCounts } from '../../wire/resources/limits.ts';
import type { Compute } from '../compute/compute.ts';
import { type PlatformKeys, prepareKeys } from '../files/key-file.ts';
import { callNode } from './node-calls.ts';

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

/** Declares endpoints, creates the first keys, and removes deleted endpoints from all shards. */
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

interface LeaderRoute {
  client: NodeClient;
  /** Undefined while this node starts. */
  findLeader: () => Pick<Placement, 'find'> | undefined;
}

/**
 * Sends changes of sessions to the node that leads, because only the leader writes them.
 * @returns false if this node leads
 * @throws ProblemError `unavailable` if the leader cannot be reached
 */
export async function sendToLeader(
  change: SessionChange,
  { client, findLeader }: LeaderRoute,
): Promise<boolean> {
  const leader = findLeader()?.find(undefined) ?? { kind: 'none' };
  if (leader.kind === 'here') return false;
  const retry = { retryAfterMs: 1_000 };
  if (leader.kind === 'none') throw new ProblemError('unavailable', 'no node leads now', retry);
  try {
    await callNode(client, leader.url, 'session', change);
    return true;
  } catch (cause) {
    if (!(cause instanceof NodeCallError)) throw cause;
    throw new ProblemError('unavailable', 'the node that leads does not answer', {
      ...retry,
      cause,
    });
  }
}

export interface LeaderUseOptions {
  client: NodeClient;
  placement: Pick<Placement, 'find'>;
  /** On this node, if it leads. */
  countHere: (userId: string) => Promise<UseCounts>;
}

const RETRY = { retryAfterMs: 1_000 };

/**
 * What a user uses of the quotas, from the node that leads: other nodes know neither pods nor versions.
 * @throws ProblemError `unavailable`
 */
export async function readLeaderUse(
  userId: string,
  { client, countHere, placement }: LeaderUseOptions,
): Promise<UseCounts> {
  const leader = placement.find(undefined);
  if (leader.kind === 'here') return countHere(userId);
  if (leader.kind === 'none') throw new ProblemError('unavailable', 'no node leads now', RETRY);
  try {
    return useCounts.parse(await callNode(client, leader.url, 'userUse', { userId }));
  } catch (cause) {
    if (!(cause instanceof NodeCallError)) throw cause;
    const detail = 'the node that leads does not answer';
    throw new ProblemError('unavailable', detail, { ...RETRY, cause });
  }
}
