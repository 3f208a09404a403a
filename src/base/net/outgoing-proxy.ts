// Decides which proxy a request to a URL takes, from the variables that curl, Python and Go read: HTTPS_PROXY,
// HTTP_PROXY, ALL_PROXY and NO_PROXY.
import { BlockList, isIP } from 'node:net';

/** The proxy of a URL, http or https; undefined: the request goes directly. @throws TypeError if a variable is unusable */
export type ChooseProxy = (url: URL) => URL | undefined;

export const noProxy: ChooseProxy = () => undefined;

type Environment = Readonly<Record<string, string | undefined>>;

const VARIABLES: Readonly<Record<string, string>> = {
  'https:': 'https_proxy',
  'grpcs:': 'https_proxy',
  'http:': 'http_proxy',
  'grpc:': 'http_proxy',
};
const DEFAULT_PORTS: Readonly<Record<string, string>> = {
  'https:': '443',
  'grpcs:': '443',
  'http:': '80',
  'grpc:': '80',
};

/**
 * Lower case counts before upper case, and ALL_PROXY stands in for both. NO_PROXY is a list of host names (their
 * subdomains too), addresses, networks (`10.0.0.0/8`) and `*`, each with a port or without. Loopback never takes a proxy.
 */
export function readProxies(environment: Environment): ChooseProxy {
  const exceptions = readNoProxy(environment);
  return (url) => {
    const proxy = readProxy(environment, url.protocol);
    if (!proxy) return undefined;
    const host = url.hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
    const target = {
      host: host.toLowerCase(),
      port: url.port || (DEFAULT_PORTS[url.protocol] ?? ''),
    };
    const isDirect = isLoopback(host) || exceptions.some((each) => matches(target, each));
    return isDirect ? undefined : parseProxy(proxy);
  };
}

/** The proxy of all URLs with the scheme (`https:`), exceptions aside. @throws TypeError */
export function findProxy(environment: Environment, scheme: string): URL | undefined {
  const proxy = readProxy(environment, scheme);
  return proxy && parseProxy(proxy);
}

export function readNoProxy(environment: Environment): string[] {
  return (read(environment, 'no_proxy')?.value ?? '').split(/[\s,]+/).filter(Boolean);
}

/** The proxy without its password, for logs and errors. */
export function nameProxy({ host, protocol }: URL): string {
  return `${protocol}//${host}`;
}

/** The clause that an error about a URL ends with. */
export function describeProxy(proxy: URL | undefined): string {
  return proxy ? `, through the proxy ${nameProxy(proxy)}` : '';
}

/** The option of Node's HTTP agents that sends their requests through the proxy. */
export function toAgentProxy(proxy: URL | undefined) {
  return proxy ? { proxyEnv: { HTTP_PROXY: proxy.href, HTTPS_PROXY: proxy.href } } : {};
}

function readProxy(environment: Environment, scheme: string) {
  const variable = VARIABLES[scheme];
  if (variable === undefined) return undefined;
  return read(environment, variable) ?? read(environment, 'all_proxy');
}

function read(environment: Environment, name: string) {
  const found = [name, name.toUpperCase()].find((each) => environment[each]);
  return found === undefined ? undefined : { name: found, value: environment[found] ?? '' };
}

/** @throws TypeError */
function parseProxy({ name, value }: { name: string; value: string }): URL {
  const url = URL.parse(value.includes('://') ? value : `http://${value}`);
  if (url && /^https?:$/.test(url.protocol) && url.hostname !== '') return url;
  // The value may contain a password.
  throw new TypeError(`${name} must be the http or https URL of a proxy`);
}

function isLoopback(host: string): boolean {
  if (isIP(host) === 0) return host === 'localhost' || host.endsWith('.localhost');
  return isInNetwork(host, '127.0.0.0/8') || isInNetwork(host, '::1/128');
}

function matches(target: { host: string; port: string }, exception: string): boolean {
  if (exception === '*') return true;
  if (exception.includes('/')) return isInNetwork(target.host, exception);
  const [, bracketed, name, port] =
    /^(?:\[([^\]]*)\]|([^:]*|.*:.*:.*?))(?::(\d+))?$/.exec(exception.toLowerCase()) ?? [];
  if (port !== undefined && port !== target.port) return false;
  const host = (bracketed ?? name ?? '').replace(/^\*?\./, '').replace(/\.$/, '');
  if (host === '') return false;
  if (isIP(host) !== 0) return isInNetwork(target.host, `${host}/${isIP(host) === 4 ? 32 : 128}`);
  return target.host === host || (isIP(target.host) === 0 && target.host.endsWith(`.${host}`));
}

/** Also of an IPv6 address that carries an IPv4 address. */
function isInNetwork(host: string, network: string): boolean {
  const [, base = '', bits = ''] = /^([^/]*)\/(\d{1,3})$/.exec(network) ?? [];
  const isV4 = isIP(base) === 4;
  if (isIP(host) === 0 || isIP(base) === 0 || Number(bits) > (isV4 ? 32 : 128)) return false;
  const list = new BlockList();
  list.addSubnet(base, Number(bits), isV4 ? 'ipv4' : 'ipv6');
  return list.check(host, isIP(host) === 4 ? 'ipv4' : 'ipv6');
}
