// The worker link over HTTP: one request per call, long polls included, and a separate pool of connections for each verb that
// waits or carries much data, so that none queues behind another.
import { readRetryAfterMs } from '../../base/backoff.ts';
import { systemClock } from '../../base/clock.ts';
import { describeProxy, noProxy } from '../../base/net/outgoing-proxy.ts';
import {
  adviseTrust,
  describeCallFailure,
  describeRedirect,
  hintAtScheme,
  TRUST_ADVICE,
} from '../../base/net/request-hints.ts';
import type { LinkCall } from '../../wire/link/carried-link.ts';
import { decodeAnswer, encodeCall, readRefusal } from '../../wire/link/http-form.ts';
import { LinkError } from '../../wire/link/worker-link.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { type WORKER_HEADERS, WORKER_ROUTES, type WorkerVerb } from '../../wire/routes/routes.ts';
import {
  ANSWER_MARGIN_MS,
  type Carrier,
  type LinkOptions,
  OWNER_CONNECT_MS,
  type RoutedLink,
  routeLink,
} from '../routed-link.ts';
import { Connections, type ConnectionsOptions, type PostAnswer } from './connections.ts';

const OWNER_HEADER = 'millrace-owner' satisfies Lowercase<typeof WORKER_HEADERS.owner>;
/** An endpoint may be unknown while a platform is being set up; frequent retries do not help. */
const NOT_FOUND_RETRY_MS = 10_000;
/** Upper bound of any requested wait: a timer of more than 24 days would fire at once. */
const MAX_RETRY_AFTER_MS = 3_600_000;

interface HttpLinkOptions extends LinkOptions {
  /** Time to open a connection, ms. Default 10,000. */
  connectMs?: number;
}

/** @throws TypeError if the URL is invalid or not http or https */
export function createHttpLink(options: HttpLinkOptions): RoutedLink {
  const url = new URL(options.url);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new TypeError(`the platform's URL must be http or https: ${options.url}`);
  }
  const { answerMarginMs = ANSWER_MARGIN_MS, chooseProxy = noProxy, connectMs = 10_000 } = options;
  const { endpointId, key, log, tls } = options;
  const open = (to: URL, limitMs: number) =>
    new HttpTarget({
      url: to,
      endpointId,
      key,
      tls,
      connectMs: limitMs,
      pauseMs: answerMarginMs,
      proxy: chooseProxy(to),
    });
  return routeLink({
    configured: open(url, connectMs),
    rules: { configured: options.url, carrier: 'http' },
    open: (owner) => open(new URL(owner), Math.min(connectMs, OWNER_CONNECT_MS)),
    clock: systemClock,
    log,
    answerMarginMs,
  });
}

interface HttpTargetOptions extends Omit<ConnectionsOptions, 'max'> {
  endpointId: string;
  key: string;
}

class HttpTarget implements Carrier {
  readonly #options: HttpTargetOptions;
  readonly #takes: Connections;
  readonly #renewals: Connections;
  readonly #reports: Connections;
  readonly #controlCalls: Connections;

  constructor(options: HttpTargetOptions) {
    this.#options = options;
    // Two connections: an abandoned one may still be closing, and a renewal that names new leases
    // is sent beside the waiting one.
    const openPool = () => new Connections({ ...options, max: 2 });
    this.#takes = openPool();
    this.#renewals = openPool();
    this.#reports = openPool();
    this.#controlCalls = openPool();
  }

  get isIdle(): boolean {
    return this.#pools.every((pool) => pool.isIdle);
  }

  /** @throws LinkError */
  async ask(call: LinkCall, limitMs: number) {
    const answer = await this.#post(call, limitMs);
    if (answer.status < 200 || answer.status >= 300) throw this.#toError(call, answer);
    const owner = answer.headers[OWNER_HEADER];
    return {
      ...decodeAnswer(call, answer),
      ownerUrl: typeof owner === 'string' ? owner : undefined,
    };
  }

  close(): void {
    for (const pool of this.#pools) pool.close();
  }

  retire(): void {
    for (const pool of this.#pools) pool.retire();
  }

  async #post(call: LinkCall, limitMs: number): Promise<PostAnswer> {
    const { key, proxy, url } = this.#options;
    const { signal, verb } = call;
    const { body, headers } = encodeCall(call);
    try {
      return await this.#find(verb).post({
        path: url.pathname.replace(/\/+$/, '') + this.#pathOf(verb),
        headers: { ...headers, authorization: `Bearer ${key}` },
        body,
        answerMs: limitMs,
        signal,
      });
    } catch (cause) {
      const failure = adviseTrust(describeCallFailure(cause), TRUST_ADVICE);
      const why = signal?.aborted ? 'cancelled by the caller' : failure;
      // Later calls may be cut by a restart.
      const hint = verb === 'hello' ? hintAtScheme(cause, url.href) : '';
      const text = `${verb}: ${why}${hint}${describeProxy(proxy)}`;
      throw new LinkError('unavailable', text, { cause });
    }
  }

  /** A missing endpoint is retried slowly, and is told from a 404 of a proxy by Millrace's code. */
  #toError({ verb }: LinkCall, answer: PostAnswer): LinkError {
    const { proxy, url } = this.#options;
    const { headers, status } = answer;
    const { code, detail, problem } = readRefusal(answer);
    const redirect = describeRedirect({
      status,
      location: headers.location,
      url: url.href,
      path: this.#pathOf(verb),
    });
    // Only a platform has such a code; any other answer may be the proxy's.
    const via = problem === undefined ? describeProxy(proxy) : '';
    const message = `${verb}: ${redirect ?? `${status}${detail ? ` ${detail}` : ''}`}${via}`;
    const askedMs = readRetryAfterMs(headers['retry-after'], Date.now());
    const retryAfterMs = askedMs ?? (status === 404 ? NOT_FOUND_RETRY_MS : undefined);
    return new LinkError(code, message, {
      retryAfterMs: retryAfterMs && Math.min(retryAfterMs, MAX_RETRY_AFTER_MS),
      endpointMissing: status === 404 && problem === 'not_found',
    });
  }

  #pathOf(verb: WorkerVerb): string {
    return fillPath(WORKER_ROUTES[verb], { endpoint: this.#options.endpointId });
  }

  get #pools(): Connections[] {
    return [this.#takes, this.#renewals, this.#reports, this.#controlCalls];
  }

  #find(verb: WorkerVerb): Connections {
    switch (verb) {
      case 'take':
        return this.#takes;
      case 'renew':
        return this.#renewals;
      case 'report':
        return this.#reports;
      default:
        return this.#controlCalls;
    }
  }
}
