// Schemas of API keys, and of browser sessions, whose cookie stands for a key; their operations. Only the response that creates a
// key contains the key itself.
import { z } from 'zod';
import {
  ANSWER_NOTHING,
  bodyJson,
  describeOperations,
  JSON_TYPE,
} from '../operations/operation.ts';
import { describeFixedResource } from '../operations/resource.ts';
import { KEY_ROUTES, RESOURCES, SESSION_ROUTES } from '../routes/routes.ts';
import { creationShape, recordShape } from './field-schemas.ts';
import { KEY_FIELDS } from './fields.ts';

/** Body of `POST /v1/keys`. control/keys/rights.ts checks the scopes. */
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

/** Body of `POST /v1/session`. */
export const sessionCreation = z.strictObject({
  key: z.string().min(1).max(200).describe('The API key'),
});

const ENGINES = ['process', 'docker', 'kubernetes'] as const;

/** The caller of the request: of its session, or of its key. */
export const sessionRecord = z.object({
  key: z
    .object({ id: z.string(), name: z.string() })
    .nullable()
    .describe('The key of the session; null if the platform needs no key'),
  userId: z.string(),
  scopes: z.array(z.string()).describe('What the key allows'),
  expiresAt: z.iso
    .datetime()
    .nullable()
    .describe('When the session or the key ends at the latest; null: never'),
  platform: z.object({
    version: z.string(),
    engine: z.enum(ENGINES).nullable().describe('Runs pods; null without an engine'),
    nodes: z.int().min(1).describe('Nodes that serve the platform now'),
    isDev: z.boolean().describe('Calls from this machine need no key'),
  }),
});
export type SessionRecord = z.infer<typeof sessionRecord>;

const SESSION_EXAMPLE: SessionRecord = {
  key: { id: 'key_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d72', name: 'ada' },
  userId: 'owner',
  scopes: ['admin'],
  expiresAt: '2026-01-22T09:30:00.000Z',
  platform: { version: '0.1.0', engine: 'docker', nodes: 1, isDev: false },
};

const SESSION_BODY_BYTES = 4_096;

const content = { [JSON_TYPE]: { schema: sessionRecord, example: SESSION_EXAMPLE } };

export const SESSION_OPERATIONS = describeOperations('console', SESSION_ROUTES, {
  createSession: {
    summary: 'Sign in a browser with an API key',
    description:
      'The answer sets the cookie `millrace_session` (over TLS `__Host-millrace_session`), which stands for the key in calls below `/v1` and `/v2`. Where ' +
      'calls from this machine need no key, send no body: there is no cookie then.',
    body: {
      ...bodyJson(sessionCreation, { key: 'mr_…' }),
      presence: 'optional',
      maxBytes: SESSION_BODY_BYTES,
    },
    answers: {
      201: {
        description: 'The browser is signed in.',
        content,
        headers: ['Cache-Control', 'Set-Cookie'],
      },
    },
    refusals: [401, 403, 429],
  },
  getSession: {
    summary: 'Show who the caller is and what they may do',
    answers: { 200: { description: 'The caller.', content } },
  },
  deleteSession: {
    summary: 'Sign out a browser',
    answers: ANSWER_NOTHING,
  },
});
