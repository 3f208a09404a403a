// Loads undici on first use. Loading takes 100 ms of processor time, and a platform without
// webhooks and load-balancing endpoints never needs it.
import { createRequire } from 'node:module';
import type { Agent, Dispatcher } from 'undici';
import { skipUnaskedContinue } from './unasked-continue.ts';

/** Time to connect to a proxy, and from it to the target, ms. */
const CONNECT_MS = 10_000;

const load = createRequire(import.meta.url);

export function loadUndici(): typeof import('undici') {
  skipUnaskedContinue();
  return load('undici');
}

/** Connections through a proxy. */
export function openProxy(proxy: URL, options: Agent.Options = {}): Dispatcher {
  const { Pool, ProxyAgent } = loadUndici();
  return new ProxyAgent({
    ...options,
    uri: proxy.href,
    // Many proxies allow tunnels only to port 443.
    proxyTunnel: false,
    clientFactory: (origin, settings) =>
      new Pool(origin, { ...settings, headersTimeout: CONNECT_MS }),
  });
}
