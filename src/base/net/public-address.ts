// Decides which addresses a caller's URL may lead to, and provides a connector that refuses all
// others. The caller limits requests, redirects and sizes.

import { type LookupAddress, lookup as resolveName } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { buildConnector } from 'undici';
import { loadUndici } from './undici.ts';

/**
 * All global unicast addresses assigned today; anything else is unassigned or carries another
 * address.
 */
const GLOBAL_IPV6 = ipaddr.IPv6.parse('2000::');
const GLOBAL_IPV6_BITS = 3;

/** Public by its range, but answered inside a cloud: Azure's machines use it for their own services. */
const CLOUD_INSIDE: ReadonlySet<string> = new Set(['168.63.129.16']);

export class RefusedAddressError extends Error {
  override readonly name = 'RefusedAddressError';
}

/** Returns the reason to refuse an address, in a few words, or undefined to allow it. */
export type AddressRule = (address: string) => string | undefined;

/**
 * Allows IPv4 and IPv6 unicast addresses that are routed on the internet. Refuses every other
 * range: loopback, private, link-local, unique-local, CGNAT, multicast, reserved, and every IPv6
 * form that carries an IPv4 address (mapped, compatible, translated, 6to4, NAT64, Teredo). Also
 * refuses 168.63.129.16, which is internal to Azure.
 */
export const publicOnly: AddressRule = (address) => {
  if (!ipaddr.isValid(address)) return 'not an IP address';
  const parsed = ipaddr.parse(address);
  const range = parsed.range();
  if (range !== 'unicast') return range;
  if (parsed.kind() === 'ipv6' && !parsed.match(GLOBAL_IPV6, GLOBAL_IPV6_BITS)) return 'reserved';
  return CLOUD_INSIDE.has(parsed.toString()) ? 'cloud host' : undefined;
};

/** Allows every address, for operators who trust their callers. */
export const anyAddress: AddressRule = () => undefined;

/** Resolves a name to all its addresses, like `dns.lookup` with `all`. */
export type ResolveName = (
  hostname: string,
  options: { all: true },
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

export interface ConnectorOptions {
  rule: AddressRule;
  /** Default: `dns.lookup`, the resolver of the machine. */
  resolve?: ResolveName | undefined;
}

/**
 * Returns a connector for an undici Agent. It fails with RefusedAddressError unless the rule allows
 * every address of the host. It connects to a checked address and resolves each name once, so a
 * second, different DNS answer has no effect.
 */
export function buildGuardedConnector({
  rule,
  resolve = resolveName,
}: ConnectorOptions): buildConnector.connector {
  const connect = loadUndici().buildConnector({
    allowH2: false,
    lookup: guardLookup({ rule, resolve }),
  });
  return (options, callback) => {
    const refusal = judgeLiteral(options.hostname, rule);
    if (refusal) callback(refusal, null);
    else connect(options, callback);
  };
}

/** A literal address needs no lookup. Undefined if the host is a name, or an address that the rule allows. */
export function judgeLiteral(hostname: string, rule: AddressRule): RefusedAddressError | undefined {
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  const reason = isIP(host) === 0 ? undefined : rule(host);
  return reason === undefined
    ? undefined
    : new RefusedAddressError(`${host} is refused (${reason})`);
}

/** A lookup for sockets that fails with RefusedAddressError unless the rule allows every address of the name. */
export function guardLookup({ rule, resolve = resolveName }: ConnectorOptions): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, { all: true }, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error) return callback(error, []);
      if (first === undefined) return callback(new Error(`${hostname} has no address`), []);
      for (const { address } of addresses) {
        const reason = rule(address);
        if (reason === undefined) continue;
        const refusal = `${hostname} is refused: it resolves to ${address} (${reason})`;
        return callback(new RefusedAddressError(refusal), []);
      }
      if (options.all) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}
