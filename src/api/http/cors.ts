// Cross-origin calls. Tells browsers that pages of the listed origins may call the API and read its answers (CORS),
// and detects signs that a call without a key does not come from a local program, but from another network, a web
// page in a local browser, or a local proxy or tunnel.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ARCHIVE_HEADERS, LOG_CUT_HEADER, STREAM_HEADERS } from '../../wire/routes/routes.ts';
import { announcesBody } from '../limits/exchanges.ts';
import { findForwarded } from './forwarded.ts';

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
function isOriginAllowed(origin: string | undefined, allowed: readonly string[]): boolean {
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

const LOOPBACK_PEER = /^(::1|(::ffff:)?127(\.\d{1,3}){3})$/;
const LOCAL_HOST = /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i;

/** Headers that proxies, tunnels and clouds add. No list is complete, so prefixes count. */
const FORWARDING_HEADERS: readonly RegExp[] = [
  /forwarded/,
  /(client|connecting|real|user|remote)-?(ip|addr|address|host)$/,
  /^(via|cdn-loop|front-end-https|surrogate-capability|x-scheme|x-url-scheme|x-request-start)$/,
  // Proxies and meshes.
  /^x-(envoy|haproxy|nginx|traefik|varnish|proxy|proxied|proxyuser|lb|accel|original)(-|$)/,
  /^x-(auth-request|pomerium|authentik|ssl|tls)-/,
  // Tunnels.
  /^(x-)?(ngrok|tailscale|cf|cloudflare|zrok|pinggy|localxpose|devtunnels?|ms-devtunnels?)-/,
  // Clouds and content networks.
  /^(x-)?(fly|heroku|vercel|netlify|nf|render|railway|akamai|fastly|azure|arr|appgw|fd)-/,
  /^x-(amzn?|cloud-trace|goog|appengine|cloudfront|sucuri|cdn|edge)-/,
];

/** Content types that a page may send to another site without a preflight. */
const SIMPLE_MEDIA_TYPES = [
  'application/x-www-form-urlencoded',
  'multipart/form-data',
  'text/plain',
];

type Signs = Pick<FastifyRequest, 'headers' | 'raw'>;

/**
 * Returns why a call without a key may be foreign, or undefined. Host: a name that was made to
 * point here (DNS rebinding). Origin and Sec-Fetch-Site: a page of another site, or of another port
 * of this machine, unless its origin is one of `corsOrigins`. A form's content type: a page whose browser sends neither header.
 */
export function findForeignSign(
  { headers, raw }: Signs,
  corsOrigins: readonly string[] = [],
): string | undefined {
  const { host, origin } = headers;
  if (!LOOPBACK_PEER.test(raw.socket.remoteAddress ?? '')) {
    return 'the call does not come over the loopback interface';
  }
  // `headers` contains only the first of two Host headers; an absolute URL as target overrides
  // both.
  const isPlain = raw.headersDistinct['host']?.length === 1 && raw.url?.startsWith('/');
  if (host === undefined || !LOCAL_HOST.test(host) || !isPlain) {
    return 'the Host header is not localhost, 127.0.0.1 or [::1]';
  }
  const scheme = 'encrypted' in raw.socket ? 'https' : 'http';
  const isListed = isOriginAllowed(origin, corsOrigins);
  const isOwn = origin?.toLowerCase() === `${scheme}://${host.toLowerCase()}`;
  if (origin !== undefined && !isOwn && !isListed) {
    return 'the Origin header names another site; if it is your own page, allow it with --cors';
  }
  const site = headers['sec-fetch-site'];
  if (!isListed && site !== undefined && site !== 'same-origin' && site !== 'none') {
    return 'the Sec-Fetch-Site header says that the call comes from another site';
  }
  const forwarding = Object.keys(headers).find(isForwardingHeader);
  if (forwarding !== undefined)
    return `the ${forwarding} header shows that a proxy forwarded the call`;
  return findSimplePost({ headers, raw });
}

function isForwardingHeader(name: string): boolean {
  return FORWARDING_HEADERS.some((family) => family.test(name));
}

/** For any other content type a browser sends a preflight, which fails. */
function findSimplePost({ headers, raw }: Signs): string | undefined {
  if (raw.method !== 'POST' || !announcesBody(raw)) return undefined;
  const type = headers['content-type']?.split(';')[0]?.trim().toLowerCase() ?? '';
  if (type === '')
    return 'the Content-Type header is missing; send "Content-Type: application/json"';
  if (!SIMPLE_MEDIA_TYPES.includes(type)) return undefined;
  return `the Content-Type is ${type}, which a form could send; send "Content-Type: application/json"`;
}
