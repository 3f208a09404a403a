// The cookie of a browser's session: where it is accepted, and which requests with it come from the console itself.
import type { FastifyRequest } from 'fastify';
import type { HeldSession, Sessions } from '../../control/keys/sessions.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { RouteAccess } from '../../wire/routes/route.ts';
import { CONSOLE_HEADER } from '../../wire/routes/routes.ts';
import type { ClientOrigin } from './client-origin.ts';
import { OWN_PATHS } from './requests.ts';

const SESSION_COOKIE = 'millrace_session';
/** Name over TLS: browsers accept such a cookie only from this host, not from a related one. */
const SECURE_COOKIE = `__Host-${SESSION_COOKIE}`;

/** Signs of the site from which a browser sends a request. */
type Origins = Pick<FastifyRequest, 'headers' | 'raw' | 'server'>;

/**
 * The session of a request, if its route accepts one: Millrace's own API, but no calls of workers. Undefined without a
 * valid session. @throws ProblemError `forbidden` for a request that another site may have made the browser send
 */
export function findSession(
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
