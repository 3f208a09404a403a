// Cross-origin requests (CORS): tells browsers that pages of the listed origins may call the API and read its
// answers, and answers their preflights.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ARCHIVE_HEADERS, LOG_CUT_HEADER, STREAM_HEADERS } from '../../wire/routes/routes.ts';
import { findForwarded } from '../nodes/forwarded.ts';

/** Any page. Only for a platform on which every call needs a key. */
export const ANY_ORIGIN = '*';

/** Most origins of one platform. */
export const MAX_ORIGINS = 100;

/** Headers of answers that a page may read, besides those that browsers always show. */
const EXPOSED_HEADERS = [
  ...Object.values(STREAM_HEADERS),
  ...Object.values(ARCHIVE_HEADERS),
  LOG_CUT_HEADER,
  'Allow',
  'Location',
  'RateLimit',
  'RateLimit-Policy',
  'Retry-After',
  'WWW-Authenticate',
].join(', ');

/** Used for a preflight that names no headers. */
const USUAL_HEADERS = 'Authorization, Content-Type, Idempotency-Key, Traceparent, Tracestate';

/** How long a browser may remember the answer to a preflight; two hours is the most that Chromium accepts, s. */
const PREFLIGHT_AGE_S = 7_200;

/** Returns what is wrong with an entry of the list, or undefined. */
export function findOriginProblem(origin: string): string | undefined {
  if (origin === ANY_ORIGIN) return undefined;
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  const isWeb = url?.protocol === 'http:' || url?.protocol === 'https:';
  if (url && isWeb && url.origin === origin) return undefined;
  const meant = url && isWeb ? `; write ${url.origin}` : '';
  return `${JSON.stringify(origin)} is not an origin, such as https://app.example.com or http://localhost:5173${meant}`;
}

/** Whether pages of this origin may call the platform. */
export function isOriginAllowed(origin: string | undefined, allowed: readonly string[]): boolean {
  return origin !== undefined && (allowed.includes(ANY_ORIGIN) || allowed.includes(origin));
}

/**
 * Call it before the checks of requests: a preflight carries no key, and a page must be able to read the answer
 * of a refused call.
 */
export function allowOrigins(app: FastifyInstance, origins: readonly string[]): void {
  if (origins.length === 0) return;
  app.addHook('onRequest', (request, reply, done) => {
    // The node that forwarded the request sends the answer to the browser.
    if (findForwarded(request.raw)) return done();
    const { origin } = request.headers;
    const { raw } = reply;
    // On the raw response, because streams and forwarded answers do not pass through the framework. A cache must
    // not give the answer for one origin to another.
    if (!origins.includes(ANY_ORIGIN)) raw.setHeader('Vary', 'Origin');
    if (!isOriginAllowed(origin, origins)) return done();
    raw.setHeader('Access-Control-Allow-Origin', origins.includes(ANY_ORIGIN) ? '*' : `${origin}`);
    if (!isPreflight(request)) {
      raw.setHeader('Access-Control-Expose-Headers', EXPOSED_HEADERS);
      return done();
    }
    raw.setHeader('Access-Control-Allow-Methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
    raw.setHeader('Access-Control-Allow-Headers', readAskedHeaders(request) ?? USUAL_HEADERS);
    raw.setHeader('Access-Control-Max-Age', String(PREFLIGHT_AGE_S));
    // Chromium asks this before a public page may call a private address.
    if (request.headers['access-control-request-private-network'] === 'true') {
      raw.setHeader('Access-Control-Allow-Private-Network', 'true');
    }
    reply.code(204).send();
  });
}

function isPreflight({ headers, method }: FastifyRequest): boolean {
  return method === 'OPTIONS' && headers['access-control-request-method'] !== undefined;
}

/** A worker behind a balancer may read any header, so all that the page names are allowed. */
function readAskedHeaders({ headers }: FastifyRequest): string | undefined {
  const asked = headers['access-control-request-headers'];
  return asked !== undefined && /^[\w!#$%&'*+.^`|~, -]+$/.test(asked) ? asked : undefined;
}
