// What a node that starts compares with the running nodes: its engine, in a cluster also its name, because whichever node
// leads manages the pods of all; and its webhook secrets.
import { createHmac, randomBytes } from 'node:crypto';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import type { Log } from '../../base/log.ts';
import type { Membership } from '../../cluster/membership.ts';
import type { EngineKind } from '../../control/endpoints/templates.ts';
import { PlatformOptionError } from '../option-error.ts';
import {
  askNode,
  MAX_SECRETS,
  NODE_CALLS,
  type SecretDigests,
  type SecretsVerdict,
} from './node-calls.ts';

interface LocalEngine {
  engine: EngineKind;
  /** Name of the platform in its cluster. Undefined: each node has a machine of its own. */
  cluster?: string | undefined;
}

interface OtherNodes {
  membership: Pick<Membership, 'id' | 'view'>;
  client: NodeClient;
}

/** A node that does not answer is left out. @throws PlatformOptionError */
export async function checkEngines(
  own: LocalEngine,
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
    const { engine, name } = await askNode(client, url, NODE_CALLS.describe, null);
    return { engine, name };
  } catch {
    return {};
  }
}

// Any node may send a webhook, so receivers must be able to verify the secrets of all. Secrets do not leave their node:
// salted digests do.

/** Of the secrets of a node, in their order. */
function digestSecrets(secrets: readonly string[], salt: string): string[] {
  return secrets
    .slice(0, MAX_SECRETS)
    .map((secret) => createHmac('sha256', salt).update(secret).digest('hex'));
}

/** `shared`: the nodes have some secrets in common, as while secrets are rotated. */
export function compareSecrets(
  { digests, salt }: SecretDigests,
  own: readonly string[],
): SecretsVerdict {
  const here = new Set(digestSecrets(own, salt));
  const there = new Set(digests);
  const common = here.intersection(there).size;
  if (common === 0) return 'different';
  return common === here.size && common === there.size ? 'equal' : 'shared';
}

export interface SecretsCheckOptions {
  client: NodeClient;
  /** URLs of the other live nodes. */
  others: readonly string[];
  secrets: readonly string[];
  log: Log;
}

/**
 * Nodes that do not answer are left out: they compare when they start. @throws PlatformOptionError if a node has only other
 * secrets
 */
export async function checkWebhookSecrets(options: SecretsCheckOptions): Promise<void> {
  const { client, log, others, secrets } = options;
  const salt = randomBytes(32).toString('hex');
  const body = { salt, digests: digestSecrets(secrets, salt) };
  const verdicts = await Promise.all(
    others.map(async (url) => {
      const answer = await askNode(client, url, NODE_CALLS.webhooks, body).catch(() => undefined);
      return { url, verdict: answer?.secrets };
    }),
  );
  for (const { url, verdict } of verdicts) {
    if (verdict === 'shared') log.warn({ node: url }, 'webhook secrets of a node differ in part');
    if (verdict !== 'different') continue;
    const problem = `has no secret in common with the node ${url}; receivers could verify the webhooks of one of them only. Copy the file of that node`;
    throw new PlatformOptionError('invalid', 'webhooks.secretFile', problem);
  }
}
