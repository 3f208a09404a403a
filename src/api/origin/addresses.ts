// Groups client addresses, and matches lists of addresses and networks.
import { BlockList, isIPv4, isIPv6 } from 'node:net';

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
export function unmap(address: string): string {
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
