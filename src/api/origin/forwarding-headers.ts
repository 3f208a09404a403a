// Reads the headers with which proxies describe the connections before theirs: X-Forwarded-*, or Forwarded of
// RFC 7239. Pure.
import type { IncomingHttpHeaders } from 'node:http';

/** More proxies are a mistake or an attempt to keep the platform busy: the farthest hops are dropped. */
const MAX_HOPS = 50;

/** What one proxy tells of the connection that it has accepted. */
export interface Hop {
  /** As sent, so perhaps with a port, or not an address at all. */
  address?: string | undefined;
  proto?: 'http' | 'https' | undefined;
  host?: string | undefined;
}

/** The hops of X-Forwarded-For, the farthest first. */
export function readHops(headers: IncomingHttpHeaders): Hop[] {
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
export function readForwarded({ forwarded }: IncomingHttpHeaders): Hop[] {
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
