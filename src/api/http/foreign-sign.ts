// Detects signs that a call without a key does not come from a local program. It may come from
// another network, a web page in a local browser, or a local proxy or tunnel.
import type { FastifyRequest } from 'fastify';
import { isOriginAllowed } from './cors.ts';

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
  const hasBody =
    headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
  if (raw.method !== 'POST' || !hasBody) return undefined;
  const type = headers['content-type']?.split(';')[0]?.trim().toLowerCase() ?? '';
  if (type === '')
    return 'the Content-Type header is missing; send "Content-Type: application/json"';
  if (!SIMPLE_MEDIA_TYPES.includes(type)) return undefined;
  return `the Content-Type is ${type}, which a form could send; send "Content-Type: application/json"`;
}
