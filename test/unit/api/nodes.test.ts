// GET /v1/nodes and `millrace nodes`.
import { describe, expect, it, onTestFinished } from 'vitest';
import { nodesCommands } from '../../../src/cli/resources/nodes.ts';
import { describeMachine } from '../../../src/control/limits/capacity.ts';
import { createSelfReader, listOnlyNode } from '../../../src/platform/node-list.ts';
import { nodeList } from '../../../src/wire/resources/nodes.ts';
import { startPlatform } from '../../support/api/platform.ts';
import { createCatalog, GPU, PodWorld } from '../../support/containers/pod-world.ts';
import { printVerb } from '../../support/runs/verb-run.ts';

const LIMITS = { memoryGb: 64, vcpus: 16, diskGb: Number.MAX_SAFE_INTEGER };
const H200 = { kind: 'gpu', index: 0, name: 'H200', memoryBytes: 150_754_820_096 } as const;
const DEVICES = ['GPU-a', 'GPU-b'].map((uuid) => ({ ...H200, uuid }));

async function openWorld(): Promise<PodWorld> {
  const catalog = createCatalog(DEVICES.map(({ uuid }) => uuid));
  const world = await PodWorld.open({ catalog });
  onTestFinished(() => world.close());
  return world;
}

describe('the machine of a node', () => {
  it('has what its pods leave', async () => {
    const world = await openWorld();
    const stopped = await world.create({ disk: 3 });
    await world.create({ disk: 5 });
    const { id } = await world.create({ gpu: { id: GPU, count: 1 }, disk: 2 });
    await world.settle();
    await world.pods.act('owner', stopped.id, 'stop');
    await world.settle(60_000);
    const facts = { engine: 'docker', node: null, limits: LIMITS, devices: DEVICES };
    expect(describeMachine(facts, world.pods.live)).toEqual({
      ...{ engine: 'docker', pods: 2, memoryGb: { limit: 64, used: 4 } },
      ...{ vcpus: { limit: 16, used: 2 }, diskGb: { limit: null, used: 10 } },
      gpus: [
        { uuid: 'GPU-a', name: 'H200', memoryGb: 140, podId: id },
        { uuid: 'GPU-b', name: 'H200', memoryGb: 140, podId: null },
      ],
    });
    const other = describeMachine({ ...facts, node: 'other', devices: [] }, world.pods.live);
    expect(other).toMatchObject({ pods: 0, memoryGb: { limit: 64, used: 0 } });
  });
});

describe('the list of nodes', () => {
  const open = async () => {
    const { pods } = await openWorld();
    const store = { warnings: ['the disk is nearly full'], measure: () => SIZES };
    const readSelf = createSelfReader(store, 1_000);
    const platform = await startPlatform({
      server: {
        listNodes: () => {
          const { endpoints } = platform;
          const compute = { endpoints, engineKind: 'docker', limits: LIMITS, pods } as const;
          return listOnlyNode({ compute, devices: DEVICES, readSelf });
        },
      },
    });
    return platform;
  };

  it('shows the only node of a platform', async () => {
    const { call } = await open();
    const response = await call('/v1/nodes');
    expect(response.status).toBe(200);
    const { nodes } = nodeList.parse(await response.json());
    expect(nodes).toMatchObject([
      {
        ...{ id: 'local', name: null, url: null, state: 'serving', isLeader: true, endpoints: 1 },
        self: {
          startedAt: 1_000,
          store: { databaseBytes: 4_096, freeBytes: null, warnings: ['the disk is nearly full'] },
        },
        machine: { engine: 'docker', pods: 0, gpus: [{ podId: null }, { podId: null }] },
      },
    ]);
  });

  it('is for the operator alone, with a key that may read pods', async () => {
    const { call, keys } = await open();
    const statusOf = async (scopes: string[], userId: string) => {
      const { key } = await keys.issue({ name: 'k', scopes, userId });
      return (await call('/v1/nodes', { headers: { authorization: key } })).status;
    };
    expect(await statusOf(['pods:read'], 'owner')).toBe(200);
    expect(await statusOf(['jobs:read', 'keys:read'], 'owner')).toBe(403);
    expect(await statusOf(['admin'], 'ada')).toBe(403);
  });

  it('is printed as a table and as JSON', async () => {
    const { admin, url } = await open();
    const print = async (...args: string[]) => {
      return printVerb(nodesCommands, ['list', ...args, '--url', url, '--key', admin]);
    };
    expect(await print()).toMatch(
      /\nlocal +serving, leads +\S+ +- +1 +0 +0 of 64 +0 of 16 +0 +2 of 2 +the disk is nearly full\n$/,
    );
    expect(nodeList.parse(JSON.parse(await print('--json'))).nodes).toHaveLength(1);
  });
});

const SIZES = { database: 4_096, wal: undefined };
