import { expect, it } from 'vitest';
import type { ClusterView } from '../../../../src/cluster/cluster-rows.ts';
import { ServedShards } from '../../../../src/cluster/local-shards.ts';
import { followViews } from '../../../../src/platform/nodes/node-routing.ts';

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
