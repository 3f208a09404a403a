// The link of a worker on HTTP or gRPC: carries each call to the node that owns the endpoint, as the platform has told, or to
// the configured URL, and bounds the time of its answer. The worker decides when to repeat a call, except that a call which the
// owner does not answer is repeated at the configured URL: all five verbs are idempotent. The key is sent to the owner, so
// encryption is never given up: if the configured URL needs TLS, the owner's must too.

import { backoffMs } from '../base/backoff.ts';
import type { ResumableClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { ChooseProxy } from '../base/net/outgoing-proxy.ts';
import { carryLink, type LinkAnswer, type LinkCall } from '../wire/link/carried-link.ts';
import { LinkError, type WorkerLink } from '../wire/link/worker-link.ts';

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

/** The same owner is called again after this pause; each failure doubles it. */
const HOLD_OFF = { baseMs: 1_000, maxMs: 60_000, jitter: 0.2 };

/** Connections to one URL. */
interface Target {
  /** Breaks open calls; later ones fail. */
  close(): void;
  /** Closes the connections once no call is open. A later call opens new ones. */
  retire(): void;
  /** No call is open. */
  readonly isIdle: boolean;
}

interface Answered<R> {
  value: R;
  /** The owner's URL, if the platform has told it with the answer. */
  ownerUrl: string | undefined;
}

export interface OwnerRouteOptions<T extends Target> {
  /** Connections to the configured URL. */
  configured: T;
  rules: OwnerUrlRules;
  /** @throws TypeError if the URL is unusable */
  open: (url: string) => T;
  clock: Pick<ResumableClock, 'monotonic'>;
  log: Log;
}

interface CallTerms {
  /** Wait that the call itself asks for, ms. */
  waitMs: number;
  /** Gives the call up. */
  signal?: AbortSignal | undefined;
}

interface Owner<T> {
  url: string;
  target: T;
}

export class OwnerRoute<T extends Target> {
  readonly #options: OwnerRouteOptions<T>;
  #owner: Owner<T> | undefined;
  /** Earlier owners that have open calls. */
  readonly #former = new Set<T>();
  /** Counts the changes of the owner: an answer to an earlier call must not undo one. */
  #changes = 0;
  /** The owner that failed last. */
  #failed: { url: string; failures: number; until: number } | undefined;
  #unusable: string | undefined;
  #isClosed = false;

  constructor(options: OwnerRouteOptions<T>) {
    this.#options = options;
  }

  /** `run` is called a second time if the owner does not answer. @throws what `run` throws */
  async call<R>(run: (target: T) => Promise<Answered<R>>, terms: CallTerms): Promise<R> {
    const owner = this.#owner;
    if (owner) {
      const { clock } = this.#options;
      const askedAt = clock.monotonic();
      try {
        return await this.#callOwner(owner, run);
      } catch (error) {
        const isSilent = clock.monotonic() - askedAt > terms.waitMs;
        const isGivenUp = terms.signal?.aborted === true;
        if (this.#isClosed || isPlatformsWord(error)) throw error;
        // The worker gives calls up for reasons of its own, too.
        if (!isGivenUp || isSilent) this.#fail(owner, error);
        if (isGivenUp) throw error;
      }
    }
    const changes = this.#changes;
    const { ownerUrl, value } = await run(this.#options.configured);
    this.#follow(ownerUrl, changes);
    return value;
  }

  /** Breaks open calls. */
  close(): void {
    this.#isClosed = true;
    this.#options.configured.close();
    this.#owner?.target.close();
    for (const target of this.#former) target.close();
  }

  async #callOwner<R>(owner: Owner<T>, run: (target: T) => Promise<Answered<R>>): Promise<R> {
    const changes = this.#changes;
    const { ownerUrl, value } = await run(owner.target);
    if (this.#failed?.url === owner.url) this.#failed = undefined;
    this.#follow(ownerUrl, changes);
    return value;
  }

  #follow(told: string | undefined, changes: number): void {
    if (told === undefined || this.#isClosed || changes !== this.#changes) return;
    if (told === this.#owner?.url || told === this.#unusable || this.#isHeldOff(told)) return;
    const { log, open, rules } = this.#options;
    try {
      const url = readOwnerUrl(told, rules);
      if (url === 'configured') {
        if (this.#owner) this.#change(undefined);
        return;
      }
      this.#change({ url: told, target: open(url) });
    } catch (error) {
      this.#unusable = told;
      log.warn({ err: error, owner: told.slice(0, 200) }, 'URL of the owner cannot be used');
      return;
    }
    if (this.#failed?.url === told) return;
    log.info({ owner: told }, 'calling the owner of the endpoint directly');
  }

  #change(owner: Owner<T> | undefined): void {
    this.#changes += 1;
    const before = this.#owner;
    this.#owner = owner;
    for (const target of this.#former) if (target.isIdle) this.#former.delete(target);
    if (before) {
      this.#former.add(before.target);
      before.target.retire();
    }
    if (owner) this.#options.configured.retire();
  }

  #fail(owner: Owner<T>, error: unknown): void {
    // Another call has seen it.
    if (this.#owner !== owner) return;
    const { clock, log } = this.#options;
    const failures = (this.#failed?.url === owner.url ? this.#failed.failures : 0) + 1;
    const waitMs = backoffMs(failures, HOLD_OFF);
    this.#failed = { url: owner.url, failures, until: clock.monotonic() + waitMs };
    this.#owner = undefined;
    this.#changes += 1;
    // A silent node would keep the other calls waiting.
    owner.target.close();
    if (failures > 1) return;
    const fields = { err: error, owner: owner.url, waitMs };
    log.warn(fields, 'owner of the endpoint does not answer, using the configured URL');
  }

  #isHeldOff(url: string): boolean {
    const failed = this.#failed;
    return failed?.url === url && this.#options.clock.monotonic() < failed.until;
  }
}

/** Only a platform that knows the worker's ID answers so; the configured URL would, too. */
function isPlatformsWord(error: unknown): boolean {
  if (!(error instanceof LinkError)) return false;
  return error.code === 'stale_incarnation' || error.code === 'unknown_worker';
}

/** Most characters of an owner's URL. */
const MAX_OWNER_URL_LENGTH = 512;

interface OwnerUrlRules {
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
