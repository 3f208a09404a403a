// Lists the nodes of the cluster, with what each says of itself. Only the leader knows the machines.
import type { NodeClient } from '../../api/nodes/node-client.ts';
import type { ClusterView, NodeView } from '../../cluster/cluster-view.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { describeMachine } from '../../control/pods/machine-use.ts';
import type { Pods } from '../../control/pods/pods.ts';
import { type NodeRecord, type NodeSelf, nodeSelf } from '../../wire/resources/nodes.ts';
import { findNameInId } from '../files/node-name.ts';
import type { MachineInfo } from '../machines/machine-messages.ts';
import type { ReadSelf } from '../node-list.ts';
import { callNode } from './node-calls.ts';

export interface NodeListOptions {
  cluster: { readonly id: string; readonly view: ClusterView };
  client: NodeClient;
  endpoints: Pick<Endpoints, 'all'>;
  pods: Pick<Pods, 'live'> | undefined;
  /** By ID of the node; undefined if its machine is not known. */
  findMachine: (nodeId: string) => MachineInfo | undefined;
  readSelf: ReadSelf;
}

/** Nodes that do not answer in time have no `self`. Never rejects. */
export async function listNodes(options: NodeListOptions): Promise<NodeRecord[]> {
  const { cluster, endpoints, findMachine, pods } = options;
  const { nodes, shards } = cluster.view;
  const ofShards = new Map<number, number>();
  for (const { shard } of endpoints.all()) ofShards.set(shard, (ofShards.get(shard) ?? 0) + 1);
  return Promise.all(
    nodes.map(async (node): Promise<NodeRecord> => {
      const own = shards.filter(({ owner }) => owner === node.id).map(({ id }) => id);
      const info = findMachine(node.id);
      const facts = info && { ...info, node: info.name };
      return {
        ...{
          id: node.id,
          name: info?.name ?? findNameInId(node.id),
          url: node.url,
          state: judge(node),
        },
        ...{ isLeader: own.includes(0), shards: own },
        endpoints: own.reduce((sum, shard) => sum + (ofShards.get(shard) ?? 0), 0),
        self: await readSelf(node, options),
        machine: facts && pods ? describeMachine(facts, pods.live) : null,
      };
    }),
  );
}

function judge({ isLeaving, isLive }: NodeView): NodeRecord['state'] {
  if (!isLive) return 'gone';
  return isLeaving ? 'leaving' : 'serving';
}

async function readSelf(
  { id, isLive, url }: NodeView,
  { client, cluster, readSelf: readOwn }: NodeListOptions,
): Promise<NodeSelf | null> {
  if (!isLive) return null;
  try {
    return id === cluster.id
      ? await readOwn()
      : nodeSelf.parse(await callNode(client, url, 'self', null));
  } catch {
    // The node does not answer.
    return null;
  }
}
