// Connections for undici's requests, directly or through the proxy of each URL.
import type { Agent, Dispatcher } from 'undici';
import { type ChooseProxy, describeProxy } from './outgoing-proxy.ts';
import {
  anyAddress,
  buildGuardedConnector,
  type ConnectorOptions,
  guardLookup,
  judgeLiteral,
  RefusedAddressError,
} from './public-address.ts';
import { loadUndici, openProxy } from './undici.ts';

/** Time for which an own lookup holds up a request through a proxy, ms. */
const LOOKUP_MS = 2_000;

export interface OutgoingAgentsOptions {
  chooseProxy: ChooseProxy;
  /** Which addresses may be reached. Default: any, by the machine's own resolver. */
  guard?: ConnectorOptions;
  agent?: Agent.Options;
}

export class OutgoingAgents {
  readonly #options: OutgoingAgentsOptions;
  #direct: Dispatcher | undefined;
  readonly #proxies = new Map<string, Dispatcher>();

  constructor(options: OutgoingAgentsOptions) {
    this.#options = options;
  }

  /** @throws RefusedAddressError, TypeError if the proxy's variable is unusable */
  async open(url: URL): Promise<Dispatcher> {
    const { agent, chooseProxy, guard } = this.#options;
    const proxy = chooseProxy(url);
    const { Agent } = loadUndici();
    if (!proxy) {
      const connect = guard && { connect: buildGuardedConnector(guard) };
      this.#direct ??= new Agent({ ...agent, ...connect });
      return this.#direct;
    }
    if (guard) await checkProxied(url.hostname, guard);
    const known = this.#proxies.get(proxy.href) ?? openProxy(proxy, agent);
    this.#proxies.set(proxy.href, known);
    return known;
  }

  /** The clause for an error about the URL. */
  describe(url: URL): string {
    return describeProxy(this.#options.chooseProxy(url));
  }

  /** Breaks open requests. */
  async destroy(): Promise<void> {
    const all = [this.#direct, ...this.#proxies.values()];
    await Promise.all(all.map((each) => each?.destroy()));
  }
}

/**
 * The proxy resolves names, and must refuse what its network must not be asked for. Addresses, and names that this
 * machine resolves to refused addresses, are refused here. @throws RefusedAddressError
 */
export async function checkProxied(hostname: string, guard: ConnectorOptions): Promise<void> {
  if (guard.rule === anyAddress) return;
  const refusal = judgeLiteral(hostname, guard.rule);
  if (refusal) throw refusal;
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(resolve, LOOKUP_MS);
    guardLookup(guard)(hostname.replace(/^\[(.*)\]$/, '$1'), { all: true }, (error) => {
      clearTimeout(timer);
      if (error instanceof RefusedAddressError) reject(error);
      else resolve();
    });
  });
}
