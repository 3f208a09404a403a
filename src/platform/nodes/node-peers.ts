// How the queue of a shard reaches the queues of the others: here, or by calls to the nodes that serve them.
import { NodeCallError, type NodeClient } from '../../api/nodes/node-client.ts';
import type { Peers, ShardService } from '../../queue/handover/peers.ts';
import type { ShardedQueues } from '../../queue/queues.ts';
import { ProblemError } from '../../wire/problem.ts';
import { askNode, NODE_CALLS, type NodeCall } from './node-calls.ts';
import type { ShardOwners } from './node-routing.ts';

export interface NodePeersOptions {
  client: NodeClient;
  owners: Pick<ShardOwners, 'find'>;
  queues: Pick<ShardedQueues, 'serviceOf'>;
  /** Undefined for an unknown endpoint. */
  shardOf: (endpointId: string) => number | undefined;
}

export function createPeers(options: NodePeersOptions, shard: number): Peers {
  const { shardOf } = options;
  return { shard, shardOf, at: (other) => reachShard(options, other) };
}

function reachShard({ client, owners, queues }: NodePeersOptions, shard: number): ShardService {
  const here = queues.serviceOf(shard);
  if (here) return here;
  const ask = async <Body, Answer>(call: NodeCall<Body, Answer>, body: Body): Promise<Answer> => {
    const owner = owners.find(shard);
    if (owner.kind !== 'node') return refuseShard(shard);
    try {
      return await askNode(client, owner.url, call, body);
    } catch (cause) {
      if (cause instanceof NodeCallError) return refuseShard(shard, cause);
      throw cause;
    }
  };
  return {
    receive: async (batch) => (await ask(NODE_CALLS.handover, { shard, ...batch })).taken,
    describeParents: (asked) => ask(NODE_CALLS.parents, { shard, ...asked }),
    judgeJobs: async (asked) =>
      (await ask(NODE_CALLS.judgeJobs, { shard, ...asked, jobs: [...asked.jobs] })).problem,
    describeJobs: (asked) => ask(NODE_CALLS.jobStates, { shard, keys: [...asked.keys] }),
    readOutput: (asked) => ask(NODE_CALLS.output, { shard, ...asked }),
  };
}

/** @throws ProblemError `unavailable` */
export function refuseShard(shard: number, cause?: unknown): never {
  const detail = `the node that serves shard ${shard} does not answer`;
  throw new ProblemError('unavailable', detail, { retryAfterMs: 1_000, cause });
}
