// Authenticates the caller by key, by the cookie of a browser's session, or on `millrace dev` by a connection from this
// machine, and checks scopes. An endpoint of another user looks as if it did not exist.
import type { FastifyRequest } from 'fastify';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { KeyHolder, Keys } from '../../control/keys/keys.ts';
import { allows, type CodeAccess, requireCodeAccess } from '../../control/keys/rights.ts';
import type { BrowserSession, HeldSession, Sessions } from '../../control/keys/sessions.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { RouteAccess, Scope } from '../../wire/routes/route.ts';
import { CONSOLE_HEADER } from '../../wire/routes/routes.ts';
import type { ClientOrigin } from './client-origin.ts';
import { findForeignSign } from './cors.ts';
import { OWN_PATHS } from './requests.ts';

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

const SESSION_COOKIE = 'millrace_session';
/** Name over TLS: browsers accept such a cookie only from this host, not from a related one. */
const SECURE_COOKIE = `__Host-${SESSION_COOKIE}`;

/** Signs of the site from which a browser sends a request. */
type Origins = Pick<FastifyRequest, 'headers' | 'raw' | 'server'>;

/**
 * The session of a request, if its route accepts one: Millrace's own API, but no calls of workers. Undefined without a
 * valid session. @throws ProblemError `forbidden` for a request that another site may have made the browser send
 */
function findSession(
  request: FastifyRequest,
  access: RouteAccess,
  sessions: Pick<Sessions, 'use'>,
): HeldSession | undefined {
  if (access === 'worker' || !acceptsSessions(request.routeOptions.url)) return undefined;
  const token = readSessionToken(request);
  const held = token === undefined ? undefined : sessions.use(token);
  if (held) checkOwnPage(request);
  return held;
}

/** Routes of Millrace's own API, by their pattern: not those of workers, load balancing and other services' APIs. */
function acceptsSessions(route = ''): boolean {
  return OWN_PATHS.test(route);
}

/** Returns undefined without a session's cookie, or with several: a page of a related site may have added one. */
export function readSessionToken({ raw, server }: Origins): string | undefined {
  const { cookie } = raw.headers;
  return cookie === undefined ? undefined : readToken(cookie, server.origins.ofRequest(raw));
}

/** Reads the token from the value of the Cookie header. */
export function readToken(
  cookie: string,
  { isSecure }: Pick<ClientOrigin, 'isSecure'>,
): string | undefined {
  const wanted = isSecure ? SECURE_COOKIE : SESSION_COOKIE;
  const own = splitCookies(cookie).filter(([name]) => name === wanted);
  return own.length === 1 ? own[0]?.[1] : undefined;
}

/** The header without the session; undefined if nothing is left. */
export function stripSessionCookie(cookie: string): string | undefined {
  if (!cookie.includes(SESSION_COOKIE)) return cookie;
  const left = splitCookies(cookie).filter(
    ([name]) => name !== SESSION_COOKIE && name !== SECURE_COOKIE,
  );
  return left.length === 0 ? undefined : left.map(([, , text]) => text).join('; ');
}

function splitCookies(cookie: string): [name: string, value: string, text: string][] {
  return cookie.split(';').map((each) => {
    const text = each.trim();
    const at = text.indexOf('=');
    return [text.slice(0, Math.max(0, at)).trim(), text.slice(at + 1).trim(), text];
  });
}

/** Value of Set-Cookie. `maxAgeS` 0 removes the cookie. */
export function composeSessionCookie({
  isSecure,
  maxAgeS,
  token,
}: {
  token: string;
  maxAgeS: number;
  isSecure: boolean;
}): string {
  const name = isSecure ? SECURE_COOKIE : SESSION_COOKIE;
  const terms = [`${name}=${token}`, 'HttpOnly', 'SameSite=Strict', 'Path=/'];
  return [...terms, `Max-Age=${maxAgeS}`, ...(isSecure ? ['Secure'] : [])].join('; ');
}

/**
 * A cookie goes with every request of a browser, so a change needs a header that only a page of this origin can send.
 * SameSite does not tell apart the ports of a host and the subdomains of a domain. @throws ProblemError `forbidden`
 */
function checkOwnPage(request: FastifyRequest): void {
  const { headers, method } = request;
  const isReading = method === 'GET' || method === 'HEAD';
  refuseOtherSite(request, isReading ? ['same-origin', 'none'] : ['same-origin']);
  if (isReading || headers[CONSOLE_HEADER.toLowerCase()] === '1') return;
  throw new ProblemError(
    'forbidden',
    `A request with the cookie ${SESSION_COOKIE} that changes something needs the header "${CONSOLE_HEADER}: 1".`,
  );
}

/** Headers that a browser sends about the page; other clients send none. @throws ProblemError `forbidden` */
export function refuseOtherSite({ headers, raw, server }: Origins, sites: readonly string[]): void {
  const { origin, 'sec-fetch-site': site } = headers;
  if (typeof site === 'string' && !sites.includes(site)) {
    const detail = `Sec-Fetch-Site is ${site.slice(0, 50)}: only pages of this platform may use a session.`;
    throw new ProblemError('forbidden', detail);
  }
  if (origin === undefined || isOwnOrigin(origin, server.origins.ofRequest(raw).host)) return;
  const detail = `Origin is ${origin.slice(0, 200)}, and the Host header names another host: only pages of this platform may use a session.`;
  throw new ProblemError('forbidden', detail);
}

function isOwnOrigin(origin: string, host = ''): boolean {
  if (!URL.canParse(origin)) return false;
  const { host: named, protocol } = new URL(origin);
  const own = `${protocol}//${host}`;
  return URL.canParse(own) && new URL(own).host === named;
}
