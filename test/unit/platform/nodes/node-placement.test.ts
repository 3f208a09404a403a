import { expect, it } from 'vitest';
import { NodePlacement, ShardOwners } from '../../../../src/platform/nodes/node-placement.ts';

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
