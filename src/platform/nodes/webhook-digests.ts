// The message with which a node that starts shows which webhook secrets it has.
import { z } from 'zod';

/** Of one node. */
export const MAX_SECRETS = 500;

export const secretDigests = z.object({
  /** New for each comparison. */
  salt: z.string().min(32).max(128),
  /** HMAC-SHA-256 of each secret with the salt as the key, hex. */
  digests: z.array(z.string().length(64)).max(MAX_SECRETS),
});

export type SecretDigests = z.infer<typeof secretDigests>;

export type SecretsVerdict = 'equal' | 'shared' | 'different';
