// Resolves host names with a deadline and without the thread pool. `dns.lookup` occupies one of the few threads that all
// lookups and file operations share, for as long as a name server does not answer. Beside DNS, names are read from a
// hosts file and search domains from resolv.conf, as the machine's resolver does.
import { type LookupAddress, NODATA, NOTFOUND } from 'node:dns';
import { Resolver } from 'node:dns/promises';
import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';
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

class NameTimeoutError extends Error {
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
  const hosts = new ParsedFile(hostsPath, parseHosts);
  const rules = new ParsedFile(searchPath, parseSearchRules);
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
    return await Promise.race([queryOneByOne(resolver, candidates), deadline.promise]);
  } finally {
    clearTimeout(timer);
  }
}

async function queryOneByOne(
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

/** A larger file is no list of names. */
const MAX_FILE_BYTES = 1_048_576;
/** Time for which a file is assumed to be unchanged, ms. */
const FRESH_MS = 2_000;
const DEFAULT_NDOTS = 1;
const MAX_NDOTS = 15;

interface SearchRules {
  /** Domains to append, in order. */
  search: readonly string[];
  /** A name with at least this many dots is tried without search domains first. */
  ndots: number;
}

/** Returns addresses by name, in lower case. Invalid lines are skipped. */
export function parseHosts(text: string): Map<string, string[]> {
  const hosts = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [address = '', ...names] = stripComment(line).split(/\s+/);
    if (isIP(address) === 0) continue;
    for (const name of names.map((each) => each.toLowerCase())) {
      hosts.set(name, [...(hosts.get(name) ?? []), address]);
    }
  }
  return hosts;
}

/** The last `search` or `domain` line applies, as resolv.conf(5) says. */
export function parseSearchRules(text: string): SearchRules {
  let search: string[] = [];
  let ndots = DEFAULT_NDOTS;
  for (const line of text.split('\n')) {
    const [keyword, ...words] = stripComment(line).split(/\s+/);
    if (keyword === 'search') search = words.map((word) => word.toLowerCase());
    if (keyword === 'domain') search = words.slice(0, 1).map((word) => word.toLowerCase());
    if (keyword !== 'options') continue;
    const option = words.findLast((word) => /^ndots:\d+$/.test(word));
    if (option) ndots = Math.min(MAX_NDOTS, Number(option.slice('ndots:'.length)));
  }
  return { search: search.filter((domain) => domain !== '.'), ndots };
}

function stripComment(line: string): string {
  return line.replace(/[#;].*/, '').trim();
}

/** A small file, parsed, and read again when it may have changed. A file that cannot be read is empty. */
class ParsedFile<T> {
  readonly #path: string;
  readonly #parse: (text: string) => T;
  #readAt = Number.NEGATIVE_INFINITY;
  #value: T;

  constructor(path: string, parse: (text: string) => T) {
    this.#path = path;
    this.#parse = parse;
    this.#value = parse('');
  }

  read(): T {
    const now = performance.now();
    if (now - this.#readAt < FRESH_MS) return this.#value;
    this.#readAt = now;
    this.#value = this.#parse(readSmall(this.#path));
    return this.#value;
  }
}

function readSmall(path: string): string {
  try {
    return statSync(path).size > MAX_FILE_BYTES ? '' : readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
