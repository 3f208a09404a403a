// Checks at the start of a node that it has the same engine as the nodes that serve already: whichever leads manages
// the pods of all.
import { NodeCallError, type NodeClient } from '../../api/nodes/node-client.ts';
import type { Membership } from '../../cluster/membership.ts';
import type { EngineKind } from '../../control/endpoints/deployment-rules.ts';
import { callNode } from '../nodes/node-calls.ts';
import { PlatformOptionError } from '../option-error.ts';
import { machineInfo } from './machine-messages.ts';

export interface OtherNodes {
  membership: Pick<Membership, 'id' | 'view'>;
  client: NodeClient;
}

/** A node that does not answer is left out. @throws PlatformOptionError */
export async function checkEngines(
  engine: EngineKind,
  { client, membership }: OtherNodes,
): Promise<void> {
  const { id: own, view } = membership;
  const others = view.nodes.filter(({ id, isLive }) => isLive && id !== own);
  const engines = await Promise.all(
    others.map(async ({ url }) => ({ url, engine: await readEngine(client, url) })),
  );
  const other = engines.find((each) => each.engine !== undefined && each.engine !== engine);
  if (!other) return;
  const problem = `is ${engine}, but node ${other.url} has ${other.engine}; give all nodes the same. To change it, stop all nodes first`;
  throw new PlatformOptionError('invalid', 'compute.engine', problem);
}

async function readEngine(client: NodeClient, url: string): Promise<EngineKind | undefined> {
  try {
    return machineInfo.parse(await callNode(client, url, 'describe', null)).engine;
  } catch (error) {
    // An earlier version knows neither the call nor engines with nodes.
    return error instanceof NodeCallError && error.status === 404 ? 'none' : undefined;
  }
}
