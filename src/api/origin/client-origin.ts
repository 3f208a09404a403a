// Finds the client of a request, its scheme and its host: from the connection, or from the headers of trusted
// reverse proxies. Headers of other peers are claims and have no effect. Pure.
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { isEncrypted, readClientAddress } from '../nodes/forwarded.ts';
import { isListed, listAddresses, unmap } from './addresses.ts';
import { type Hop, readForwarded, readHops } from './forwarding-headers.ts';

/** The headers that the trusted proxies set. The other family is ignored, because clients can send it through them. */
export const FORWARDED_HEADERS = ['x-forwarded', 'forwarded'] as const;
export type ForwardedHeaders = (typeof FORWARDED_HEADERS)[number];

export interface ProxyTrust {
  /** Addresses and networks, such as `10.0.0.0/8`. */
  trustedProxies: readonly string[];
  forwardedHeaders: ForwardedHeaders;
}

/** One end of a connection, and the headers that it has sent. */
export interface RequestPeer {
  address: string;
  isEncrypted: boolean;
  headers: IncomingHttpHeaders;
}

export interface ClientOrigin {
  /** The nearest address that no trusted proxy has; if all have one, the farthest. */
  address: string;
  /** Whether the client uses https. */
  isSecure: boolean;
  /** Host that the client has named; undefined without a Host header. */
  host: string | undefined;
  /** As the headers name them, the farthest first, and the peer last. Only the trusted ones at the end are certain. */
  path: readonly string[];
  /** Whether the peer is a trusted proxy. */
  isTrustedPeer: boolean;
}

declare module 'fastify' {
  interface FastifyInstance {
    origins: ClientOrigins;
  }
}

export class ClientOrigins {
  readonly #isTrusted: (address: string) => boolean;
  readonly #readHops: (headers: IncomingHttpHeaders) => readonly Hop[];

  /** @throws RangeError that names the invalid entry */
  constructor({ forwardedHeaders, trustedProxies }: ProxyTrust) {
    const proxies = listAddresses(trustedProxies);
    this.#isTrusted = (address) => isListed(proxies, address);
    this.#readHops = forwardedHeaders === 'forwarded' ? readForwarded : readHops;
  }

  /** Of a request to this node, or to the node that has forwarded it. */
  ofRequest(request: IncomingMessage): ClientOrigin {
    const peer = { address: readClientAddress(request), isEncrypted: isEncrypted(request) };
    return this.of({ ...peer, headers: request.headers });
  }

  of({ address: peer, headers, isEncrypted: isPeerSecure }: RequestPeer): ClientOrigin {
    const hops = this.#readHops(headers);
    const path = [...hops.flatMap(({ address }) => address ?? []), peer].filter(Boolean);
    const isTrustedPeer = this.#isTrusted(peer);
    const origin: ClientOrigin = {
      ...{ address: unmap(peer), isSecure: isPeerSecure, host: headers.host, path, isTrustedPeer },
    };
    // Each hop was written by the one behind it: believe it while that one is trusted.
    for (let at = hops.length - 1; at >= 0 && this.#isTrusted(origin.address); at -= 1) {
      const { address, host, proto } = hops[at] ?? {};
      if (proto !== undefined) origin.isSecure = proto === 'https';
      if (host !== undefined) origin.host = host;
      const found = address === undefined ? undefined : readAddress(address);
      if (found === undefined) break;
      origin.address = found;
    }
    return origin;
  }
}

/** Without the port and the brackets that some proxies add. Undefined for names, `unknown` and anything else. */
function readAddress(text: string): string | undefined {
  const [, bracketed, plain] =
    /^(?:\[([^\]]*)\]|(\d+\.\d+\.\d+\.\d+))(?::\d{1,5})?$/.exec(text) ?? [];
  const address = bracketed ?? plain ?? text;
  // A zone means something on one machine only.
  return isIP(address) !== 0 && !address.includes('%') ? unmap(address) : undefined;
}
