// Reads the address of another node from its URL.

/** `hostname` without the brackets of an IPv6 address: Node would look up a name with brackets. */
export function readNodeAddress(url: string): { hostname: string; port: string } {
  const { hostname, port } = new URL(url);
  return { hostname: hostname.replace(/^\[(.*)\]$/, '$1'), port: port || '80' };
}
