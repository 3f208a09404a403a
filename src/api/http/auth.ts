// Authenticates the caller by key, or on `millrace dev` by a connection from this machine, and
// checks scopes. An endpoint of another user looks as if it did not exist.
import type { FastifyRequest } from 'fastify';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { KeyHolder, Keys } from '../../control/keys/keys.ts';
import { allows, type CodeAccess, requireCodeAccess } from '../../control/keys/rights.ts';
import type { BrowserSession, Sessions } from '../../control/keys/sessions.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { RouteAccess, Scope } from '../../wire/routes/route.ts';
import { findForeignSign } from './cors.ts';
import { findSession } from './session-cookie.ts';

/**
 * `keys`: every call needs one. `keyless-loopback`: client calls from this machine need none,
 * unless a web page or a proxy may have sent them; an unknown key counts as none. Worker calls need
 * a key. The scopes of a valid key always apply.
 */
export type Access = 'keys' | 'keyless-loopback';

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: RouteAccess;
    /** Long exchanges of the route end when their key becomes invalid. */
    endsWithKey?: true;
    /**
     * Beyond the limit of calls, the call waits. If it were refused, the worker would lose the data
     * in it.
     */
    isPatient?: true;
  }
  interface FastifyRequest {
    /** Undefined on open routes. */
    holder: KeyHolder | undefined;
    /** Set if a cookie identifies the caller. */
    session: BrowserSession | undefined;
  }
}

export const LOCAL_HOLDER: KeyHolder = {
  keyId: 'none',
  name: 'this machine',
  userId: 'owner',
  scopes: new Set(['admin']),
  expiresAt: null,
  podId: null,
};

/** The access of a route that needs a key. */
export type GuardedAccess = Exclude<RouteAccess, 'open'>;

export const BEARER = /^bearer +/i;

export interface GateOptions {
  keys: Keys;
  /** Default: no cookie identifies a caller. */
  sessions?: Sessions | undefined;
  endpoints: EndpointOwners;
  access: Access;
  /** With `keyless-loopback`: origins whose pages count as this machine. Default: none. */
  corsOrigins?: readonly string[] | undefined;
  /** Default: users' code cannot read the platform's keys. */
  codeAccess?: CodeAccess | undefined;
}

export type EndpointOwners = Pick<Endpoints, 'ownerOf'>;

export class Gate {
  readonly #options: GateOptions;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /** Identifies the caller by key or session. @throws ProblemError `unauthorized`, `forbidden` */
  identify(request: FastifyRequest, scope: GuardedAccess): KeyHolder {
    const { access, corsOrigins = [], keys, sessions } = this.#options;
    const { authorization } = request.headers;
    const needsKey = access === 'keys' || scope === 'worker';
    if (authorization !== undefined) {
      if (needsKey) return identifyKey(keys, authorization);
      // Many public clients send a key whether it is needed or not.
      const holder = findHolder(keys, authorization);
      if (holder) return holder;
    }
    const held = sessions && findSession(request, scope, sessions);
    if (held) {
      request.session = held.session;
      return held.holder;
    }
    if (needsKey) {
      throw new ProblemError('unauthorized', 'no API key: send "Authorization: Bearer <key>"');
    }
    const reason = findForeignSign(request, corsOrigins);
    if (reason === undefined) return LOCAL_HOLDER;
    throw new ProblemError(
      'unauthorized',
      `calls without a valid API key are accepted from this machine only: ${reason}`,
    );
  }

  /** Checks the caller's rights. @throws ProblemError `not_found`, `forbidden` */
  admit({ holder, params }: FastifyRequest, scope: GuardedAccess): void {
    if (scope === 'key') return;
    const endpoint = readEndpoint(params);
    if (endpoint !== undefined) requireOwnEndpoint(holder, endpoint, this.#options.endpoints);
    requireScope(holder, scope, endpoint);
    const { codeAccess } = this.#options;
    if (codeAccess) requireCodeAccess(holder, scope, codeAccess);
  }
}

/** `presented`: with or without the word Bearer. @throws ProblemError `unauthorized` */
export function identifyKey(keys: Keys, presented: string): KeyHolder {
  const holder = findHolder(keys, presented);
  if (holder) return holder;
  throw new ProblemError('unauthorized', 'Invalid, unknown or expired API key.');
}

function findHolder(keys: Keys, presented: string): KeyHolder | undefined {
  return keys.authenticate(presented.replace(BEARER, ''));
}

/** @throws ProblemError `not_found` */
export function requireOwnEndpoint(
  holder: KeyHolder | undefined,
  endpoint: string,
  endpoints: EndpointOwners,
): void {
  const owner = endpoints.ownerOf(endpoint);
  if (owner !== undefined && owner === holder?.userId) return;
  throw new ProblemError('not_found', `endpoint ${endpoint} not found`);
}

/** @throws ProblemError `forbidden` */
export function requireScope(
  holder: KeyHolder | undefined,
  scope: Scope,
  endpoint: string | undefined,
): void {
  if (holder && allows(holder, scope, endpoint)) return;
  const where = endpoint === undefined ? '' : ` for endpoint ${endpoint}`;
  throw new ProblemError('forbidden', `the API key lacks the scope ${scope}${where}`);
}

/** For data about all users. @throws ProblemError `forbidden` */
export function requireOwner(holder: KeyHolder | undefined): void {
  if (holder?.userId === LOCAL_HOLDER.userId) return;
  throw new ProblemError('forbidden', "this operation needs the operator's admin key");
}

export function readEndpoint(params: unknown): string | undefined {
  if (typeof params !== 'object' || params === null || !('endpoint' in params)) return undefined;
  return typeof params.endpoint === 'string' ? params.endpoint : undefined;
}

interface KnownNames {
  authorization: string | undefined;
  endpoint: string | undefined;
  /** Of a session. */
  token?: string | undefined;
}

export interface NameSources {
  keys: Pick<Keys, 'authenticate'>;
  sessions?: Pick<Sessions, 'use'> | undefined;
  endpoints: Pick<Endpoints, 'isKnown'>;
}

/** Whether this node does not know the key or the endpoint. Without one, there is nothing to look up. */
export function isUnknown(
  { authorization, endpoint, token }: KnownNames,
  { endpoints, keys, sessions }: NameSources,
): boolean {
  let userId: string | undefined = LOCAL_HOLDER.userId;
  if (authorization !== undefined) {
    userId = keys.authenticate(authorization.replace(BEARER, ''))?.userId;
  } else if (token !== undefined && sessions) userId = sessions.use(token)?.holder.userId;
  if (userId === undefined) return true;
  return endpoint !== undefined && !endpoints.isKnown(userId, endpoint);
}
