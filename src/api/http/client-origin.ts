// Finds the client of a request, its scheme and its host: from the connection, or from the headers of trusted reverse
// proxies (X-Forwarded-*, or Forwarded of RFC 7239). Headers of other peers are claims and have no effect. Pure.
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import { isEncrypted, readClientAddress } from './forwarded.ts';

/** The headers that the trusted proxies set. The other family is ignored, because clients can send it through them. */
export const FORWARDED_HEADERS = ['x-forwarded', 'forwarded'] as const;
export type ForwardedHeaders = (typeof FORWARDED_HEADERS)[number];

export interface ProxyTrust {
  /** Addresses and networks, such as `10.0.0.0/8`. */
  trustedProxies: readonly string[];
  forwardedHeaders: ForwardedHeaders;
}

/** One end of a connection, and the headers that it has sent. */
export interface RequestPeer {
  address: string;
  isEncrypted: boolean;
  headers: IncomingHttpHeaders;
}

export interface ClientOrigin {
  /** The nearest address that no trusted proxy has; if all have one, the farthest. */
  address: string;
  /** Whether the client uses https. */
  isSecure: boolean;
  /** Host that the client has named; undefined without a Host header. */
  host: string | undefined;
  /** As the headers name them, the farthest first, and the peer last. Only the trusted ones at the end are certain. */
  path: readonly string[];
  /** Whether the peer is a trusted proxy. */
  isTrustedPeer: boolean;
}

declare module 'fastify' {
  interface FastifyInstance {
    origins: ClientOrigins;
  }
}

export class ClientOrigins {
  readonly #isTrusted: (address: string) => boolean;
  readonly #readHops: (headers: IncomingHttpHeaders) => readonly Hop[];

  /** @throws RangeError that names the invalid entry */
  constructor({ forwardedHeaders, trustedProxies }: ProxyTrust) {
    const proxies = listAddresses(trustedProxies);
    this.#isTrusted = (address) => isListed(proxies, address);
    this.#readHops = forwardedHeaders === 'forwarded' ? readForwarded : readHops;
  }

  /** Of a request to this node, or to the node that has forwarded it. */
  ofRequest(request: IncomingMessage): ClientOrigin {
    const peer = { address: readClientAddress(request), isEncrypted: isEncrypted(request) };
    return this.of({ ...peer, headers: request.headers });
  }

  of({ address: peer, headers, isEncrypted: isPeerSecure }: RequestPeer): ClientOrigin {
    const hops = this.#readHops(headers);
    const path = [...hops.flatMap(({ address }) => address ?? []), peer].filter(Boolean);
    const isTrustedPeer = this.#isTrusted(peer);
    const origin: ClientOrigin = {
      address: unmap(peer),
      isSecure: isPeerSecure,
      host: headers.host,
      path,
      isTrustedPeer,
    };
    // Each hop was written by the one behind it: believe it while that one is trusted.
    for (let at = hops.length - 1; at >= 0 && this.#isTrusted(origin.address); at -= 1) {
      const { address, host, proto } = hops[at] ?? {};
      if (proto !== undefined) origin.isSecure = proto === 'https';
      if (host !== undefined) origin.host = host;
      const found = address === undefined ? undefined : readAddress(address);
      if (found === undefined) break;
      origin.address = found;
    }
    return origin;
  }
}

/** Without the port and the brackets that some proxies add. Undefined for names, `unknown` and anything else. */
function readAddress(text: string): string | undefined {
  const [, bracketed, plain] =
    /^(?:\[([^\]]*)\]|(\d+\.\d+\.\d+\.\d+))(?::\d{1,5})?$/.exec(text) ?? [];
  const address = bracketed ?? plain ?? text;
  // A zone means something on one machine only.
  return isIP(address) !== 0 && !address.includes('%') ? unmap(address) : undefined;
}

/** More proxies are a mistake or an attempt to keep the platform busy: the farthest hops are dropped. */
const MAX_HOPS = 50;

/** What one proxy tells of the connection that it has accepted. */
interface Hop {
  /** As sent, so perhaps with a port, or not an address at all. */
  address?: string | undefined;
  proto?: 'http' | 'https' | undefined;
  host?: string | undefined;
}

/** The hops of X-Forwarded-For, the farthest first. */
function readHops(headers: IncomingHttpHeaders): Hop[] {
  const addresses = readList(headers['x-forwarded-for']);
  const protos = readList(headers['x-forwarded-proto']);
  const hosts = readList(headers['x-forwarded-host']);
  if (addresses.length === 0 && protos.length + hosts.length > 0) {
    return [{ proto: readProto(protos.at(-1)), host: hosts.at(-1) }];
  }
  return addresses.map((address, at) => ({
    address,
    proto: readProto(pickValue(protos, at, addresses.length)),
    host: pickValue(hosts, at, addresses.length),
  }));
}

/**
 * Proxies either append to all lists or keep one value: then it belongs to the nearest proxy, and to the
 * connections before it as far as that proxy is trusted.
 */
function pickValue(values: readonly string[], at: number, hops: number): string | undefined {
  if (values.length === hops) return values[at];
  return at === hops - 1 ? values.at(-1) : undefined;
}

/** The elements of Forwarded, the farthest first; none if the header is malformed. */
function readForwarded({ forwarded }: IncomingHttpHeaders): Hop[] {
  if (forwarded === undefined) return [];
  const hops: Hop[] = [];
  let hop: Hop = {};
  const rest = [forwarded].flat().join(',');
  PAIR.lastIndex = 0;
  while (PAIR.lastIndex < rest.length) {
    const [, name, token, quoted, end] = PAIR.exec(rest) ?? [];
    if (end === undefined) return [];
    const value = quoted === undefined ? token : quoted.replaceAll(/\\(.)/g, '$1');
    if (name !== undefined && !addPair(hop, name.toLowerCase(), value ?? '')) return [];
    if (end === ';') continue;
    hops.push(hop);
    hop = {};
  }
  return [...hops, hop].filter((each) => Object.keys(each).length > 0).slice(-MAX_HOPS);
}

const TOKEN = "[\\w!#$%&'*+.^`|~-]+";
/** A pair, or nothing, up to the `;`, the `,` or the end behind it. A bare value may have the colons of an address. */
const PAIR = new RegExp(
  `[ \\t]*(?:(${TOKEN})=(?:([\\w!#$%&'*+.^\`|~:-]+)|"((?:[^"\\\\]|\\\\.)*)")[ \\t]*)?([;,]|$)`,
  'y',
);

/** Returns false for a name that the element already has: either value could be the forged one. */
function addPair(hop: Hop, name: string, value: string): boolean {
  if (name === 'for') {
    if (hop.address !== undefined) return false;
    hop.address = value;
  } else if (name === 'proto') {
    if (hop.proto !== undefined) return false;
    hop.proto = readProto(value);
  } else if (name === 'host') {
    if (hop.host !== undefined) return false;
    hop.host = value;
  }
  return true;
}

function readProto(text: string | undefined): Hop['proto'] {
  const proto = text?.toLowerCase();
  if (proto === 'https' || proto === 'wss') return 'https';
  return proto === 'http' || proto === 'ws' ? 'http' : undefined;
}

/** The last values of a header; empty ones are left out. */
function readList(value: string | string[] | undefined): string[] {
  const parts = [value ?? []].flat().flatMap((text) => text.split(','));
  return parts.flatMap((part) => part.trim() || []).slice(-MAX_HOPS);
}

/** An IPv6 client usually has a whole network: all its addresses count as one. */
export function groupOf(address: string): string {
  const plain = unmap(address);
  if (!isIPv6(plain)) return plain;
  const [left = [], right = []] = plain
    .split('::')
    .map((groups) => (groups === '' ? [] : groups.split(':')));
  const zeros = 8 - left.length - right.length;
  const groups = [...left, ...Array<string>(zeros).fill('0'), ...right];
  return `${groups.slice(0, 4).join(':')}::/64`;
}

/** Writes an IPv4 address that is mapped to IPv6 as IPv4. */
function unmap(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '');
}

/** @throws RangeError that names the invalid entry */
export function listAddresses(entries: readonly string[]): BlockList {
  const list = new BlockList();
  for (const entry of entries) {
    const [address = '', bits] = entry.split('/');
    const family = isIPv4(address) ? 'ipv4' : 'ipv6';
    const isValid = (family === 'ipv4' || isIPv6(address)) && /^\d{1,3}$/.test(bits ?? '0');
    if (!isValid || Number(bits) > (family === 'ipv4' ? 32 : 128)) {
      throw new RangeError(
        `${JSON.stringify(entry)} is not valid; give an IP address or a network such as 10.0.0.0/8`,
      );
    }
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

export function isListed(list: BlockList, address: string): boolean {
  const plain = unmap(address);
  if (isIPv4(plain)) return list.check(plain, 'ipv4');
  return isIPv6(plain) && list.check(plain, 'ipv6');
}
