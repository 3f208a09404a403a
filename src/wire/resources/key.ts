// Schemas of API keys. Only the response that creates a key contains the key itself.
import { z } from 'zod';
import { resourceName } from '../text.ts';

/** Body of `POST /v1/keys`. Scopes are checked in control/scopes.ts. */
export const keyCreation = z.strictObject({
  name: resourceName.describe(
    'Names that start with "pod pod_" are reserved for keys of worker pods',
  ),
  scopes: z
    .array(z.string().min(1).max(200))
    .min(1)
    .max(100)
    .describe(
      'Each is `admin`, `worker`, or `jobs`, `endpoints`, `pods` or `keys` with `:read` or `:write`; ' +
        'the suffix `:<endpoint>` binds it to one endpoint',
    ),
  /** Owner of the key. Only the operator may name another user. Default: the caller. */
  userId: z
    .string()
    .regex(
      /^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$/,
      'must be 1 to 128 letters, digits or ".", "_", "@", "-"',
    )
    .exactOptional(),
  expiresAt: z.iso
    .datetime({ offset: true })
    .nullable()
    .exactOptional()
    .describe(
      "ISO 8601; must be in the future; null means never. Default: the expiry of the caller's key",
    ),
});
export type KeyCreation = z.infer<typeof keyCreation>;

/** Body of `POST /v1/keys/{id}/rotate`. */
export const keyRotation = z.strictObject({
  graceSeconds: z
    .int()
    .min(0)
    .max(604_800)
    .default(0)
    .describe('Seconds for which the old key stays valid'),
});

export const keyRecord = z.object({
  id: z.string(),
  name: z.string(),
  userId: z.string(),
  scopes: z.array(z.string()),
  createdAt: z.iso.datetime(),
  expiresAt: z.iso.datetime().nullable(),
});
export type KeyRecord = z.infer<typeof keyRecord>;

/** The only response that contains `key`. */
export const issuedKey = keyRecord.extend({ key: z.string() });
export type IssuedKeyRecord = z.infer<typeof issuedKey>;

export const keyList = z.object({ keys: z.array(keyRecord), cursor: z.string().exactOptional() });
export type KeyList = z.infer<typeof keyList>;
