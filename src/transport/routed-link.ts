// The link of a worker on HTTP or gRPC: carries each call to the node that owns the endpoint (owner-route.ts) and bounds the
// time of its answer. The worker decides when to repeat a call, except that owner-route.ts repeats what the owner has not
// answered.
import type { Log } from '../base/log.ts';
import type { ChooseProxy } from '../base/net/outgoing-proxy.ts';
import { carryLink, type LinkAnswer, type LinkCall } from '../wire/link/carried-link.ts';
import type { WorkerLink } from '../wire/link/worker-link.ts';
import { OwnerRoute, type OwnerRouteOptions, type Target } from './owner-route.ts';

/** Time to connect to the owner of the endpoint, ms: the call then goes to the configured URL, within its lease. */
export const OWNER_CONNECT_MS = 3_000;
export const ANSWER_MARGIN_MS = 15_000;
/** Slowest link for which a payload's time limit is computed, bytes per ms; 20 MB get 210 s. */
const SLOW_LINK_BYTES_PER_MS = 100;

export interface LinkTls {
  /** PEM of the authorities to trust instead of the system's. */
  ca?: string;
  /** PEM of the client's certificate and key, if the platform requires them. */
  cert?: string;
  key?: string;
  /** Name in the platform's certificate, if it differs from the URL's. Only for HTTP. */
  servername?: string;
}

export interface LinkOptions {
  /**
   * URL of the platform. HTTP: http or https; a path is a prefix of all routes. gRPC: grpc or http, or with TLS grpcs or
   * https; without a path.
   */
  url: string;
  endpointId: string;
  /** Sent as a bearer token. */
  key: string;
  log: Log;
  /** Read for each call: a renewed certificate is used for new connections. */
  tls?: () => LinkTls;
  /** Default: no proxy. */
  chooseProxy?: ChooseProxy;
  /**
   * Time that an answer may take in addition to the requested wait and the payload's transfer over
   * a slow link; also the longest pause between two pieces of it. ms. Default 15,000. More than the
   * worker's own limit for a renewal (5 s), which applies first.
   */
  answerMarginMs?: number;
}

export interface RoutedLink extends WorkerLink {
  /** Breaks open calls; later calls fail. */
  close(): Promise<void>;
}

/** Makes calls at one URL. */
export interface Carrier extends Target {
  /** `limitMs`: time until the answer begins. @throws LinkError */
  ask(call: LinkCall, limitMs: number): Promise<LinkAnswer & { ownerUrl: string | undefined }>;
}

interface RoutedLinkOptions<C extends Carrier> extends OwnerRouteOptions<C> {
  answerMarginMs: number;
}

export function routeLink<C extends Carrier>({
  answerMarginMs,
  ...options
}: RoutedLinkOptions<C>): RoutedLink {
  const route = new OwnerRoute(options);
  const link = carryLink((call, read) => {
    const { signal, waitMs = 0 } = call;
    const bytes = call.verb === 'report' ? countBytes(call.bodies) : 0;
    const limitMs = waitMs + Math.ceil(bytes / SLOW_LINK_BYTES_PER_MS) + answerMarginMs;
    return route.call(
      async (target) => {
        const answer = await target.ask(call, limitMs);
        return { value: read(answer), ownerUrl: answer.ownerUrl };
      },
      { waitMs, signal },
    );
  });
  return { ...link, close: async () => route.close() };
}

function countBytes(bodies: readonly Uint8Array[]): number {
  return bodies.reduce((sum, { length }) => sum + length, 0);
}
