// What a node says of itself, and the list of nodes of a platform that has only one.
import type { StoreStatus } from '../api/metrics/store-status.ts';
import { packageVersion } from '../base/package-info.ts';
import { describeMachine } from '../control/limits/capacity.ts';
import type { Device } from '../wire/link/worker-link.ts';
import type { NodeRecord, NodeSelf } from '../wire/resources/nodes.ts';
import type { Compute } from './compute/compute.ts';

export type ReadSelf = () => Promise<NodeSelf>;

/** `now`: of the start, Unix ms. */
export function createSelfReader(
  store: Pick<StoreStatus, 'measure' | 'warnings'>,
  now: number,
): ReadSelf {
  const version = packageVersion();
  return async () => {
    const { database, free } = await store.measure();
    return {
      version,
      startedAt: now,
      store: {
        databaseBytes: database ?? null,
        freeBytes: free ?? null,
        warnings: [...store.warnings],
      },
    };
  };
}

export interface OnlyNodeOptions {
  compute: Pick<Compute, 'endpoints' | 'engineKind' | 'limits' | 'pods'>;
  devices: readonly Device[];
  readSelf: ReadSelf;
}

export async function listOnlyNode(options: OnlyNodeOptions): Promise<NodeRecord[]> {
  const { compute, devices, readSelf } = options;
  const { endpoints, engineKind: engine, limits, pods } = compute;
  const facts = engine === null ? undefined : { engine, node: null, limits, devices };
  return [
    {
      id: 'local',
      name: null,
      url: null,
      state: 'serving',
      isLeader: true,
      shards: [],
      endpoints: endpoints.all().length,
      self: await readSelf(),
      machine: facts && pods ? describeMachine(facts, pods.live) : null,
    },
  ];
}
