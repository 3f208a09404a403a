import { expect, it } from 'vitest';
import type { ClusterView } from '../../../../src/cluster/cluster-rows.ts';
import { ServedShards } from '../../../../src/cluster/local-shards.ts';
import {
  followViews,
  NodePlacement,
  ShardOwners,
} from '../../../../src/platform/nodes/node-routing.ts';

/** A node `me` that serves shard 0, which these nodes own one after the other. */
function follow(owners: readonly string[]): (string | null | undefined)[] {
  const listeners: ((view: ClusterView) => void)[] = [];
  const membership = {
    id: 'me',
    onView: (listener: (view: ClusterView) => void) => void listeners.push(listener),
  };
  const served = new ServedShards({ id: 'me', view: { nodes: [], shards: [] } });
  served.add(0);
  const followed: (string | null | undefined)[] = [];
  followViews(
    { compute: { endpoints: { onChange: () => () => {} } }, membership, served },
    {
      controlCopies: {
        async follow({ shards }) {
          followed.push(shards[0]?.owner);
          return true;
        },
      },
      endpointCopies: { repeat() {} },
      placement: { noteChange() {} },
      rates: { follow() {} },
    },
  );
  for (const owner of owners) {
    const shard = { id: 0, owner, epoch: 1, offeredTo: null, failedOn: null };
    for (const listener of listeners) listener({ nodes: [], shards: [shard] });
  }
  return followed;
}

it('reads what the leader writes as soon as another node leads, before it has dropped shard 0', () => {
  expect(follow(['me', 'other'])).toEqual(['other']);
});

it('counts the requests of each shard, and those of the control plane for shard 0', () => {
  const cluster = { id: 'node', view: { nodes: [], shards: [] }, isServing: true };
  const placement = new NodePlacement({
    shardOf: (id) => (id === 'known' ? 5 : undefined),
    owners: new ShardOwners(cluster, { has: () => true }),
    reload: async () => {},
  });
  const ends = [placement.begin('known'), placement.begin(undefined), placement.begin('unknown')];
  expect([0, 5].map((shard) => placement.countRequests(shard))).toEqual([1, 1]);
  for (const end of ends) end();
  expect([0, 5].map((shard) => placement.countRequests(shard))).toEqual([0, 0]);
});
