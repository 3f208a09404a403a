// Checks at the start of a node that it has the same engine as the nodes that serve already, and in a cluster the same
// name: whichever leads manages the pods of all.
import type { NodeClient } from '../../api/nodes/node-client.ts';
import type { Membership } from '../../cluster/membership.ts';
import type { EngineKind } from '../../control/endpoints/deployment-rules.ts';
import { callNode } from '../nodes/node-calls.ts';
import { PlatformOptionError } from '../option-error.ts';
import { machineInfo } from './machine-messages.ts';

export interface OwnEngine {
  engine: EngineKind;
  /** Name of the platform in its cluster. Undefined: each node has a machine of its own. */
  cluster?: string | undefined;
}

export interface OtherNodes {
  membership: Pick<Membership, 'id' | 'view'>;
  client: NodeClient;
}

/** A node that does not answer is left out. @throws PlatformOptionError */
export async function checkEngines(
  own: OwnEngine,
  { client, membership }: OtherNodes,
): Promise<void> {
  const { id: ownId, view } = membership;
  const others = view.nodes.filter(({ id, isLive }) => isLive && id !== ownId);
  const asked = others.map(async ({ url }) => ({ url, ...(await readEngine(client, url)) }));
  for (const { engine, name, url } of await Promise.all(asked)) {
    if (engine === undefined) continue;
    if (engine !== own.engine) {
      const problem = `is ${own.engine}, but node ${url} has ${engine}; ${ADVICE}`;
      throw new PlatformOptionError('invalid', 'compute.engine', problem);
    }
    if (own.cluster !== undefined && name !== own.cluster) {
      const problem = `has \`platform\` ${own.cluster}, but node ${url} has ${name}; ${ADVICE}`;
      throw new PlatformOptionError('invalid', 'compute.kubernetes.settings', problem);
    }
  }
}

const ADVICE = 'give all nodes the same. To change it, stop all nodes first';

/** `engine` is undefined if the node does not answer. */
async function readEngine(
  client: NodeClient,
  url: string,
): Promise<{ engine?: EngineKind; name?: string }> {
  try {
    const { engine, name } = machineInfo.parse(await callNode(client, url, 'describe', null));
    return { engine, name };
  } catch {
    return {};
  }
}
