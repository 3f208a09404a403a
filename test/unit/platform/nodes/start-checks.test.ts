// A node starts only with the engine of the nodes that serve already.
import { expect, it, onTestFinished } from 'vitest';
import { NodeClient } from '../../../../src/api/nodes/node-client.ts';
import { checkEngines } from '../../../../src/platform/nodes/start-checks.ts';
import { SECRET, startNodes } from '../../../support/api/two-nodes.ts';

const LIMITS = { memoryGb: 8, vcpus: 8, diskGb: 8 };
const INFO = { name: 'a', engine: 'process', workerUrl: 'http://a', limits: LIMITS, devices: [] };
const ROW = { isLive: true, isLeaving: false, version: 1, controlNumber: 0 };

/** A cluster with one node that answers `describe` with `info`; without it, the call is unknown. */
async function startOther(info: object | undefined) {
  const forwarding = info ? { onCall: async () => info } : {};
  const { owner } = await startNodes({ forwarding });
  const client = new NodeClient({ secrets: [SECRET] });
  onTestFinished(() => client.close());
  const own = { ...ROW, id: 'node_own', url: 'http://127.0.0.1:1' };
  const nodes = [own, { ...ROW, id: 'node_other', url: owner.nodeUrl }];
  return { client, membership: { id: 'node_own', view: { nodes, shards: [] } } };
}

it('accepts the same engine', async () => {
  await expect(
    checkEngines({ engine: 'process' }, await startOther(INFO)),
  ).resolves.toBeUndefined();
});

it('refuses another engine, and names both', async () => {
  const refused = checkEngines({ engine: 'docker' }, await startOther(INFO));
  await expect(refused).rejects.toThrow(
    /^compute\.engine: is docker, but node http:\S+ has process; /,
  );
});

it('refuses another name of the platform in a cluster', async () => {
  const other = await startOther({ ...INFO, engine: 'kubernetes' });
  const own = { engine: 'kubernetes', cluster: 'a' } as const;
  await expect(checkEngines(own, other)).resolves.toBeUndefined();
  await expect(checkEngines({ ...own, cluster: 'b' }, other)).rejects.toThrow(
    /^compute\.kubernetes\.settings: has `platform` b, but node http:\S+ has a; /,
  );
});

it('leaves out a node that does not answer', async () => {
  const { client, membership } = await startOther(INFO);
  client.close();
  const [own] = membership.view.nodes;
  const dead = own ? [own, { ...own, id: 'node_other' }] : [];
  const view = { nodes: dead, shards: [] };
  const others = { client, membership: { id: 'node_own', view } };
  await expect(checkEngines({ engine: 'docker' }, others)).resolves.toBeUndefined();
});
