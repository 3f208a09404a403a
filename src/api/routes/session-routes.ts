// Signs browsers in and out, and tells callers who they are.
import type { FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { KeyHolder, Keys } from '../../control/keys/keys.ts';
import type { HeldSession, Sessions } from '../../control/keys/sessions.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  SESSION_OPERATIONS,
  type SessionRecord,
  sessionCreation,
} from '../../wire/resources/key.ts';
import {
  type Access,
  BEARER,
  composeSessionCookie,
  identifyKey,
  LOCAL_HOLDER,
  readSessionToken,
  refuseOtherSite,
} from '../http/auth.ts';
import { sendJson } from '../http/byte-reply.ts';
import { type ClientOrigin, groupOf } from '../http/client-origin.ts';
import { findForeignSign } from '../http/cors.ts';
import { readResourceBody, requireHolder } from '../http/requests.ts';
import { createMemoryCounter, type RateCounter } from '../limits/rate-limit.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

/** Sign-ins with a wrong key from one address, or one IPv6 network, in a minute. */
const MAX_WRONG_KEYS = 20;
/** Sign-ins with one key in a minute: each writes to the store. */
const MAX_KEY_SIGN_INS = 60;

/** About the platform, for its console. */
export type AboutPlatform = Omit<SessionRecord['platform'], 'version' | 'isDev'>;

export interface SessionRoutesOptions {
  keys: Keys;
  sessions: Sessions;
  clock: Clock;
  access: Access;
  corsOrigins?: readonly string[] | undefined;
  version: string;
  about: () => AboutPlatform;
}

export function bindSessions(options: SessionRoutesOptions): BoundOperation[] {
  const { about, access, corsOrigins, keys, sessions, version } = options;
  const wrongKeys = createMemoryCounter({ name: 'wrong-keys', limit: MAX_WRONG_KEYS, seconds: 60 });
  const signIns = createMemoryCounter({ name: 'sign-in', limit: MAX_KEY_SIGN_INS, seconds: 60 });
  const describe = (holder: KeyHolder, session?: HeldSession['session']): SessionRecord => {
    const end = session ? sessions.endOf(session.id) : holder.expiresAt;
    return {
      key: holder === LOCAL_HOLDER ? null : { id: holder.keyId, name: holder.name },
      userId: holder.userId,
      scopes: [...holder.scopes],
      expiresAt: end ? new Date(end).toISOString() : null,
      platform: { version, ...about(), isDev: access === 'keyless-loopback' },
    };
  };
  return bindOperations(SESSION_OPERATIONS, {
    createSession: async (request, reply) => {
      const { body } = request;
      refuseOtherSite(request, ['same-origin', 'none']);
      reply.code(201).header('cache-control', 'no-store');
      if (!body?.length && access === 'keyless-loopback') {
        const reason = findForeignSign(request, corsOrigins);
        if (reason === undefined) return sendJson(reply, describe(LOCAL_HOLDER));
        throw new ProblemError('unauthorized', `Send the API key: ${reason}.`);
      }
      const { key } = readResourceBody(body, sessionCreation);
      const holder = await identify(key, { keys, wrongKeys, signIns, request });
      await endOld(request, sessions);
      const { session, token } = await sessions.start(holder);
      const maxAgeS = Math.floor(sessions.maxMs / 1_000);
      const { isSecure } = readOrigin(request);
      reply.header('set-cookie', composeSessionCookie({ token, maxAgeS, isSecure }));
      return sendJson(reply, describe(holder, session));
    },
    getSession: async (request, reply) => {
      reply.header('cache-control', 'no-store');
      return sendJson(reply, describe(requireHolder(request), request.session));
    },
    deleteSession: async (request, reply) => {
      reply.header('cache-control', 'no-store');
      if (request.session) await sessions.end(request.session.id);
      const { isSecure } = readOrigin(request);
      const cookie = composeSessionCookie({ token: '', maxAgeS: 0, isSecure });
      return reply.header('set-cookie', cookie).code(204).send();
    },
  });
}

interface SignIn {
  keys: Keys;
  /** Wrong keys, by address. */
  wrongKeys: RateCounter;
  /** Sign-ins, by key. */
  signIns: RateCounter;
  request: FastifyRequest;
}

/** Wrong keys of an address do not keep others there from signing in. @throws ProblemError */
async function identify(
  key: string,
  { keys, request, signIns, wrongKeys }: SignIn,
): Promise<KeyHolder> {
  const holder = keys.authenticate(key.replace(BEARER, ''));
  if (!holder) {
    const wrong = `More than ${MAX_WRONG_KEYS} sign-ins with a wrong key came from this address`;
    await count(wrongKeys, groupOf(readOrigin(request).address), wrong);
    return identifyKey(keys, key);
  }
  if (holder.podId !== null) {
    throw new ProblemError('forbidden', 'This is the key of a worker; sign in with another one.');
  }
  await count(signIns, holder.keyId, `More than ${MAX_KEY_SIGN_INS} sign-ins used this key`);
  return holder;
}

/** @throws ProblemError `rate_limited` */
async function count(counter: RateCounter, name: string, tooMany: string): Promise<void> {
  const { isAdmitted, msBeforeNext } = await counter.take(name);
  if (isAdmitted) return;
  const detail = `${tooMany} in one minute.`;
  throw new ProblemError('rate_limited', detail, { retryAfterMs: msBeforeNext });
}

function readOrigin({ raw, server }: FastifyRequest): ClientOrigin {
  return server.origins.ofRequest(raw);
}

/** The browser gets another session: nobody needs the one before. */
async function endOld(request: FastifyRequest, sessions: Sessions): Promise<void> {
  const token = readSessionToken(request);
  const old = token === undefined ? undefined : sessions.use(token);
  if (old) await sessions.end(old.session.id);
}
