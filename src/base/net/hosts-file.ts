// Reads names from a hosts file and search domains from resolv.conf, as the machine's resolver does
// beside DNS. A file is read again when it has changed.
import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';

/** A larger file is no list of names. */
const MAX_FILE_BYTES = 1_048_576;
/** Time for which a file is assumed to be unchanged, ms. */
const FRESH_MS = 2_000;
const DEFAULT_NDOTS = 1;
const MAX_NDOTS = 15;

export interface SearchRules {
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

/** Parses a small file and keeps the result until the file changes; a missing file is empty. */
export class WatchedFile<T> {
  readonly #path: string;
  readonly #parse: (text: string) => T;
  #stamp: string | undefined;
  #checkedAt = Number.NEGATIVE_INFINITY;
  #value: T;

  constructor(path: string, parse: (text: string) => T) {
    this.#path = path;
    this.#parse = parse;
    this.#value = parse('');
  }

  read(): T {
    const now = performance.now();
    if (now - this.#checkedAt < FRESH_MS) return this.#value;
    this.#checkedAt = now;
    const stamp = this.#readStamp();
    if (stamp !== this.#stamp) this.#value = this.#parse(stamp === '' ? '' : this.#readText());
    this.#stamp = stamp;
    return this.#value;
  }

  #readStamp(): string {
    const stats = statSync(this.#path, { throwIfNoEntry: false });
    if (!stats || stats.size > MAX_FILE_BYTES) return '';
    return `${stats.ino} ${stats.size} ${stats.mtimeMs}`;
  }

  #readText(): string {
    try {
      return readFileSync(this.#path, 'utf8');
    } catch {
      // The machine's resolver could not read the file either.
      return '';
    }
  }
}
