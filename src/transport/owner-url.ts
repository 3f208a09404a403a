// Checks the URL of an owner that a platform has told. The key is sent there, so encryption is never given up: if the
// configured URL needs TLS, the owner's must too.

/** Most characters of an owner's URL. */
export const MAX_OWNER_URL_LENGTH = 512;

export interface OwnerUrlRules {
  /** URL of the platform as the user has configured it. */
  configured: string;
  carrier: 'http' | 'grpc';
}

const PORTS: Readonly<Record<string, string>> = {
  'http:': '80',
  'grpc:': '80',
  'https:': '443',
  'grpcs:': '443',
};

/** `configured`: the URL is that of the configuration. @throws TypeError if it must not be used */
export function readOwnerUrl(told: string, { carrier, configured }: OwnerUrlRules): string {
  const url = told.length <= MAX_OWNER_URL_LENGTH ? URL.parse(told) : null;
  if (!url) throw new TypeError(`it is not a URL of at most ${MAX_OWNER_URL_LENGTH} characters`);
  const isKnown = url.protocol in PORTS && (carrier === 'grpc' || url.protocol.startsWith('http'));
  if (!isKnown) throw new TypeError(`its scheme ${url.protocol} is not one of ${carrier}`);
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw new TypeError('it has a user, a query or a fragment');
  }
  const base = new URL(configured);
  if (isSecure(base) && !isSecure(url)) {
    throw new TypeError('it is not encrypted, and the configured URL is');
  }
  return describe(url) === describe(base) ? 'configured' : told;
}

function isSecure({ protocol }: URL): boolean {
  return protocol.endsWith('s:');
}

function describe(url: URL): string {
  const { hostname, pathname, port, protocol } = url;
  const path = pathname.replace(/\/+$/, '');
  return [isSecure(url), hostname, port || PORTS[protocol], path].join(' ');
}
