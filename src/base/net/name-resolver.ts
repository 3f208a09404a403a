// Resolves host names with a deadline and without the thread pool. `dns.lookup` occupies one of the
// few threads that all lookups and file operations share, for as long as a name server does not
// answer.
import { type LookupAddress, NODATA, NOTFOUND } from 'node:dns';
import { Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { parseHosts, parseSearchRules, type SearchRules, WatchedFile } from './hosts-file.ts';
import type { ResolveName } from './public-address.ts';

export interface NameResolverOptions {
  /** Limit of a whole lookup, with all search domains, ms. Default 5,000. */
  timeoutMs?: number | undefined;
  /** Name servers, `address` or `address:port`. Default: the machine's. */
  servers?: readonly string[] | undefined;
  /** Default `/etc/hosts`. */
  hostsPath?: string | undefined;
  /** Default `/etc/resolv.conf`; only its `search`, `domain` and `ndots` are read here. */
  searchPath?: string | undefined;
}

export class NameTimeoutError extends Error {
  override readonly name = 'NameTimeoutError';
  readonly code = 'ETIMEOUT';
}

const UNKNOWN_NAME: ReadonlySet<unknown> = new Set([NOTFOUND, NODATA]);

const LOOPBACK: readonly LookupAddress[] = [
  { address: '127.0.0.1', family: 4 },
  { address: '::1', family: 6 },
];

/**
 * Returns a function with the signature of `dns.lookup` with `all`. It reads the hosts file, then A
 * and AAAA records, with the machine's search domains. `localhost` is always loopback (RFC 6761).
 */
export function createNameResolver(options: NameResolverOptions = {}): ResolveName {
  const { hostsPath = '/etc/hosts', searchPath = '/etc/resolv.conf' } = options;
  const hosts = new WatchedFile(hostsPath, parseHosts);
  const rules = new WatchedFile(searchPath, parseSearchRules);
  return (hostname, _, callback) => {
    const name = hostname.toLowerCase();
    const known = readKnown(name, hosts.read());
    if (known) return callback(null, [...known]);
    query(listCandidates(name, rules.read()), options).then(
      (addresses) => callback(null, addresses),
      (error: Error) => callback(error, []),
    );
  };
}

function readKnown(
  name: string,
  hosts: ReadonlyMap<string, readonly string[]>,
): readonly LookupAddress[] | undefined {
  const bare = name.replace(/\.$/, '');
  const listed = hosts.get(bare);
  if (listed) return listed.map((address) => ({ address, family: isIP(address) }));
  return bare === 'localhost' || bare.endsWith('.localhost') ? LOOPBACK : undefined;
}

/** Returns the names to look up, in order. A name that ends with a dot is complete. */
export function listCandidates(name: string, { ndots, search }: SearchRules): string[] {
  if (name.endsWith('.')) return [name];
  const longer = search.map((domain) => `${name}.${domain}`);
  const dots = name.split('.').length - 1;
  return dots >= ndots ? [name, ...longer] : [...longer, name];
}

async function query(
  candidates: readonly string[],
  { servers, timeoutMs = 5_000 }: NameResolverOptions,
): Promise<LookupAddress[]> {
  // Each lookup has its own resolver, so that cancelling it cancels only its own queries.
  const resolver = new Resolver({ timeout: Math.ceil(timeoutMs / 2), tries: 2 });
  if (servers && servers.length > 0) resolver.setServers(servers);
  const deadline = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const message = `no DNS response for ${candidates.at(0)} within ${timeoutMs} ms`;
    deadline.reject(new NameTimeoutError(message));
    resolver.cancel();
  }, timeoutMs);
  try {
    return await Promise.race([queryInTurn(resolver, candidates), deadline.promise]);
  } finally {
    clearTimeout(timer);
  }
}

async function queryInTurn(
  resolver: Resolver,
  candidates: readonly string[],
): Promise<LookupAddress[]> {
  let failure: unknown;
  for (const name of candidates) {
    const [v4, v6] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
    const found = [...toAddresses(v4, 4), ...toAddresses(v6, 6)];
    if (found.length > 0) return found;
    for (const { reason } of [v4, v6].filter((each) => each.status === 'rejected')) {
      if (!isUnknownName(reason)) throw reason;
      failure ??= reason;
    }
  }
  throw failure;
}

function toAddresses(result: PromiseSettledResult<string[]>, family: number): LookupAddress[] {
  if (result.status === 'rejected') return [];
  return result.value.map((address) => ({ address, family }));
}

/** Whether the name does not exist or has no address of this family: another candidate may. */
function isUnknownName(error: unknown): boolean {
  return error instanceof Error && 'code' in error && UNKNOWN_NAME.has(error.code);
}
