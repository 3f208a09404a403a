// Schemas of API keys. Only the response that creates a key contains the key itself.
import { z } from 'zod';
import { describeOperations, JSON_TYPE } from '../operations/operation.ts';
import { describeFixedResource } from '../operations/resource.ts';
import { KEY_ROUTES, RESOURCES } from '../routes/routes.ts';
import { creationShape, recordShape } from './field-schemas.ts';
import { KEY_FIELDS } from './fields.ts';

/** Body of `POST /v1/keys`. Scopes are checked in control/scopes.ts. */
export const keyCreation = z.strictObject(creationShape(KEY_FIELDS));
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
  ...recordShape(KEY_FIELDS),
  createdAt: z.iso.datetime(),
});
export type KeyRecord = z.infer<typeof keyRecord>;

/** The only response that contains `key`. */
export const issuedKey = keyRecord.extend({ key: z.string() });
export type IssuedKeyRecord = z.infer<typeof issuedKey>;

/** A hundred scopes, each bound to an endpoint, fit in. */
const KEY_BODY_BYTES = 65_536;

const EXAMPLE: KeyRecord = {
  id: 'key_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d72',
  name: 'ci',
  userId: 'ada',
  scopes: ['jobs:read:echo', 'jobs:write:echo'],
  createdAt: '2026-01-15T09:30:00.000Z',
  expiresAt: null,
};

/** Answer of the two operations that make a key. */
const ISSUED = {
  201: {
    description: 'The key: this is the only time that it is shown.',
    content: {
      [JSON_TYPE]: { schema: issuedKey, example: { ...EXAMPLE, key: 'mr_…' } },
    },
    headers: ['Location', 'Cache-Control'],
  },
} as const;

export const keys = describeFixedResource({
  outline: RESOURCES.keys,
  about: 'API keys.',
  noun: { one: 'API key', several: 'API keys' },
  record: keyRecord,
  creation: keyCreation,
  texts: {
    create: { summary: 'Create an API key with at most the scopes of the calling key' },
    delete: { summary: 'Revoke an API key' },
  },
  answer: 'All but the key itself.',
  created: ISSUED,
  listQuery: [
    {
      name: 'userId',
      schema: z.string().exactOptional(),
      description: 'keys of this user; for the operator of the platform only',
    },
  ],
  examples: {
    record: EXAMPLE,
    creation: { name: 'ci', scopes: ['jobs:read:echo', 'jobs:write:echo'] },
  },
  maxBytes: KEY_BODY_BYTES,
});

export const KEY_OPERATIONS = describeOperations('keys', KEY_ROUTES, {
  rotateKey: {
    summary: 'Replace an API key by a new one with the same scopes',
    body: {
      schema: keyRotation,
      example: { graceSeconds: 3_600 },
      presence: 'optional',
      maxBytes: KEY_BODY_BYTES,
    },
    answers: ISSUED,
    refusals: [409],
  },
});
