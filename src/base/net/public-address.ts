// Which addresses a URL that came from outside may lead to, and a connector that goes nowhere else.
// Leaves requests, redirects and sizes to whoever calls.
import { type LookupAddress, lookup as resolveName } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { buildConnector } from 'undici';
import { loadUndici } from './lazy-undici.ts';

/** All of today's global unicast; what lies outside is unassigned or means another address. */
const GLOBAL_IPV6 = ipaddr.IPv6.parse('2000::');
const GLOBAL_IPV6_BITS = 3;

/** Global unicast by its number, and yet the inside of a cloud: Azure's machines ask it for their own. */
const CLOUD_INSIDE: ReadonlySet<string> = new Set(['168.63.129.16']);

export class RefusedAddressError extends Error {
  override readonly name = 'RefusedAddressError';
}

/** Why this address is no public one, in a few words, or undefined if it is. */
export type AddressRule = (address: string) => string | undefined;

/**
 * Public means: IPv4 or IPv6 unicast that is routed on the internet. Everything else is refused by
 * its range: loopback, private, link-local, unique-local, CGNAT, multicast, reserved, and every
 * IPv6 form that carries an IPv4 address (mapped, compatible, translated, 6to4, NAT64, Teredo); and
 * the one address by which clouds answer their own machines outside of these ranges.
 */
export const publicOnly: AddressRule = (address) => {
  if (!ipaddr.isValid(address)) return 'not an IP address';
  const parsed = ipaddr.parse(address);
  const range = parsed.range();
  if (range !== 'unicast') return range;
  if (parsed.kind() === 'ipv6' && !parsed.match(GLOBAL_IPV6, GLOBAL_IPV6_BITS)) return 'reserved';
  return CLOUD_INSIDE.has(parsed.toString()) ? 'cloud host' : undefined;
};

/** Where an operator vouches for the callers. */
export const anyAddress: AddressRule = () => undefined;

/** All addresses of a name: `dns.lookup` with `all`, or something like it. */
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
 * A connector for an undici Agent that fails with RefusedAddressError unless the rule lets every
 * address of the host pass. The addresses that were judged are the ones that are connected to: the
 * name is resolved once, so an answer that changes between two questions gains nothing.
 */
export function buildGuardedConnector({
  rule,
  resolve = resolveName,
}: ConnectorOptions): buildConnector.connector {
  const connect = loadUndici().buildConnector({
    allowH2: false,
    lookup: buildLookup(rule, resolve),
  });
  return (options, callback) => {
    // A literal address is connected to without a look-up.
    const host = options.hostname.replace(/^\[(.*)\]$/, '$1');
    const reason = isIP(host) === 0 ? undefined : rule(host);
    if (reason === undefined) connect(options, callback);
    else callback(new RefusedAddressError(`${host} is refused (${reason})`), null);
  };
}

function buildLookup(rule: AddressRule, resolve: ResolveName): LookupFunction {
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
