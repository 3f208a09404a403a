// Compares the webhook secrets of a node that starts with those of the running nodes: any node may send a webhook, so
// receivers must be able to verify all of them. Secrets do not leave their node: salted digests do.
import { createHmac, randomBytes } from 'node:crypto';
import { z } from 'zod';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import type { Log } from '../../base/log.ts';
import { PlatformOptionError } from '../option-error.ts';
import { callNode } from './node-calls.ts';
import { MAX_SECRETS, type SecretDigests, type SecretsVerdict } from './webhook-digests.ts';

const answer = z.object({ secrets: z.enum(['equal', 'shared', 'different']) });

/** Of the secrets of a node, in their order. */
export function digestSecrets(secrets: readonly string[], salt: string): string[] {
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
      const answered = await callNode(client, url, 'webhooks', body).catch(() => undefined);
      return { url, verdict: answer.safeParse(answered).data?.secrets };
    }),
  );
  for (const { url, verdict } of verdicts) {
    if (verdict === 'shared') log.warn({ node: url }, 'webhook secrets of a node differ in part');
    if (verdict !== 'different') continue;
    const problem = `has no secret in common with the node ${url}; receivers could verify the webhooks of one of them only. Copy the file of that node`;
    throw new PlatformOptionError('invalid', 'webhooks.secretFile', problem);
  }
}
