// The head of a message between a client and a worker of a load-balancing endpoint: the headers that pass, and the
// path, which belongs to the worker byte for byte behind /lb/<endpoint>.
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { LB_BASE } from '../../wire/routes/routes.ts';
import { stripSessionCookie } from '../http/auth.ts';
import { takeOver } from '../http/byte-reply.ts';
import type { ClientOrigins } from '../http/client-origin.ts';

/** Headers about one connection, not about the message. */
export const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/**
 * The key is the platform's, the host is the worker's, and expectations are handled here. Origin
 * headers are set by the platform, not by the client.
 */
const NOT_FOR_WORKERS = new Set([
  ...HOP_BY_HOP,
  'authorization',
  'host',
  'expect',
  'forwarded',
  'x-real-ip',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-prefix',
]);

/**
 * Other headers with which proxies describe a request's origin: accepted only from trusted ones.
 */
const ORIGIN_HEADER =
  /forwarded|(client|connecting|originating|real|remote|socket|user)-?(ip(v6)?|addr(ess)?)$/;

export interface ForwardingTerms {
  /** The part of the path that is removed. */
  prefix: string;
  origins: ClientOrigins;
}

const NOT_FOR_CLIENTS = new Set(HOP_BY_HOP);

/** Headers of the request, as alternating names and values; repeated ones stay repeated. */
export function composeRequestHeaders(
  request: IncomingMessage,
  { origins, prefix }: ForwardingTerms,
): string[] {
  const { headers, httpVersion, rawHeaders } = request;
  const origin = origins.ofRequest(request);
  const dropped = readTokens(headers.connection);
  const passed: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const [name = '', value = ''] = [rawHeaders[at], rawHeaders[at + 1]];
    // Some servers treat an underscore in a name as a hyphen.
    const lowered = name.toLowerCase().replaceAll('_', '-');
    const isClaim = !origin.isTrustedPeer && ORIGIN_HEADER.test(lowered);
    if (isClaim || NOT_FOR_WORKERS.has(lowered) || dropped.has(lowered)) continue;
    // The session is the platform's, as the key is.
    const left = lowered === 'cookie' ? stripSessionCookie(value) : value;
    if (left !== undefined) passed.push(name, left);
  }
  passed.push('x-forwarded-for', origin.path.join(', '), 'x-real-ip', origin.address);
  passed.push('x-forwarded-proto', origin.isSecure ? 'https' : 'http');
  if (origin.host !== undefined) passed.push('x-forwarded-host', origin.host);
  passed.push('x-forwarded-prefix', prefix, 'via', `${httpVersion} millrace`);
  if (readTokens(headers['te']).has('trailers')) passed.push('te', 'trailers');
  return passed;
}

/** Headers of the response, in lower case. */
function composeAnswerHeaders(headers: IncomingHttpHeaders): [string, string | string[]][] {
  const dropped = readTokens(headers.connection);
  return Object.entries(headers).flatMap(([name, value]): [string, string | string[]][] => {
    const isDropped = NOT_FOR_CLIENTS.has(name) || dropped.has(name);
    return isDropped || value === undefined ? [] : [[name, value]];
  });
}

export interface PassedRequest {
  request: FastifyRequest;
  reply: FastifyReply;
  /** Set if the connection may switch to another protocol. */
  upgrade: { protocol: string } | undefined;
}

/** Sets the headers of an answer from elsewhere; the platform's own override them. The caller writes the head. */
export function passHeaders(
  { reply, request, upgrade }: PassedRequest,
  status: number,
  headers: IncomingHttpHeaders,
): ServerResponse {
  const { raw } = reply;
  for (const [name, value] of composeAnswerHeaders(headers)) raw.setHeader(name, value);
  takeOver(reply);
  if (status === 101 && upgrade) {
    raw.setHeader('connection', 'upgrade').setHeader('upgrade', upgrade.protocol);
  }
  const isChunked = request.method !== 'HEAD' && !raw.hasHeader('content-length');
  if (headers.trailer !== undefined && isChunked && request.raw.httpVersionMinor > 0) {
    raw.setHeader('trailer', headers.trailer);
  }
  return raw;
}

const NO_NAMES: ReadonlySet<string> = new Set();

/** Reads a header that is a list of names. */
export function readTokens(value: string | string[] | undefined): ReadonlySet<string> {
  // The usual value, which names no other header.
  if (value === undefined || value === 'keep-alive') return NO_NAMES;
  const names = [value].flat().flatMap((text) => text.split(','));
  return new Set(names.map((name) => (name.split(';')[0] ?? '').trim().toLowerCase()));
}

/** A target may be an absolute URL. The ID ends where no ID could continue. */
const LB_TARGET = new RegExp(`^((?:https?://[^/?#]*)?(${LB_BASE}/[^/?#]+))(.*)$`, 's');

/**
 * Cuts the path before the router reads and decodes it. Returns the target for the router; all other targets stay
 * unchanged.
 */
export function foldTarget(target: string): string {
  // No pattern is needed for the targets of the API itself.
  if (target.startsWith('/') && !target.startsWith(LB_BASE)) return target;
  return LB_TARGET.exec(target)?.[1] ?? target;
}

export function isBalancedTarget(target: string): boolean {
  return LB_TARGET.test(target);
}

/** Returns the part of the path that the worker does not see, as the client wrote it. */
export function cutPrefix(target: string): string {
  return LB_TARGET.exec(target)?.[2] ?? '';
}

/** Returns path and query for the worker, unchanged: nothing is decoded, resolved or joined. */
export function cutTarget(target: string): string {
  const rest = LB_TARGET.exec(target)?.[3] ?? '';
  return rest.startsWith('/') ? rest : `/${rest}`;
}
