// Schemas of browser sessions: a cookie that stands for a key, and what its holder may do.
import { z } from 'zod';
import {
  ANSWER_NOTHING,
  bodyJson,
  describeOperations,
  JSON_TYPE,
} from '../operations/operation.ts';
import { SESSION_ROUTES } from '../routes/routes.ts';

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

const EXAMPLE: SessionRecord = {
  key: { id: 'key_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d72', name: 'ada' },
  userId: 'owner',
  scopes: ['admin'],
  expiresAt: '2026-01-22T09:30:00.000Z',
  platform: { version: '0.1.0', engine: 'docker', nodes: 1, isDev: false },
};

const SESSION_BODY_BYTES = 4_096;

const content = { [JSON_TYPE]: { schema: sessionRecord, example: EXAMPLE } };

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
