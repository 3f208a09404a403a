// The worker link over HTTP: one request per call, long polls included, and a separate pool of connections for each
// verb that waits or carries much data, so that none queues behind another. The connections are on Node's own HTTP
// client: undici would take a third of the processor time of a worker's start and 10 MB of its memory.
import type { Agent, ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { urlToHttpOptions } from 'node:url';
import { readRetryAfterMs } from '../base/backoff.ts';
import { giveBack } from '../base/byte-budget.ts';
import { systemClock } from '../base/clock.ts';
import { http } from '../base/net/node-http.ts';
import { describeProxy, noProxy, toAgentProxy } from '../base/net/outgoing-proxy.ts';
import {
  adviseTrust,
  describeCallFailure,
  describeRedirect,
  hintAtScheme,
  TRUST_ADVICE,
} from '../base/net/request-hints.ts';
import type { LinkCall } from '../wire/link/carried-link.ts';
import { decodeAnswer, encodeCall, readRefusal } from '../wire/link/http-form.ts';
import { LinkError } from '../wire/link/worker-link.ts';
import { fillPath } from '../wire/routes/route.ts';
import { type WORKER_HEADERS, WORKER_ROUTES, type WorkerVerb } from '../wire/routes/routes.ts';
import {
  ANSWER_MARGIN_MS,
  type Carrier,
  type LinkOptions,
  OWNER_CONNECT_MS,
  type RoutedLink,
  routeLink,
} from './routed-link.ts';

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

/** Idle connections are closed after this time, or sooner if the server announces a shorter time. */
const IDLE_MS = 60_000;

/** Up to this size, one copy and one write cost less than several writes. */
const JOIN_BYTES = 65_536;

export interface ConnectionsOptions {
  /** http or https; only the origin counts. */
  url: URL;
  tls: (() => { ca?: string; cert?: string; key?: string; servername?: string }) | undefined;
  proxy: URL | undefined;
  /** Most requests at a time; further ones wait. */
  max: number;
  /** Time to open a connection, ms. */
  connectMs: number;
  /** Longest pause between two pieces of an answer's body, ms. */
  pauseMs: number;
}

export interface Post {
  path: string;
  headers: Readonly<Record<string, string>>;
  /** Pieces are sent one after the other. */
  body: string | readonly Uint8Array[];
  /** Time from the request on an open connection until the answer begins, ms. */
  answerMs: number;
  signal: AbortSignal | undefined;
}

export interface PostAnswer {
  status: number;
  headers: IncomingMessage['headers'];
  body: Uint8Array;
}

export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #agent: Agent;
  readonly #open = new Set<OpenPost>();
  /** Connections that can carry a request: TLS has been negotiated. */
  readonly #ready = new WeakSet<Socket>();
  #isClosed = false;
  #isRetired = false;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    const { max, proxy, url } = options;
    const settings = {
      keepAlive: true,
      maxSockets: max,
      timeout: IDLE_MS,
      ...toAgentProxy(proxy),
    };
    this.#agent =
      url.protocol === 'https:'
        ? new (process.getBuiltinModule('node:https').Agent)(settings)
        : new http.Agent(settings);
  }

  /** Resolves with any complete answer, whatever its status. */
  post({ answerMs, body, headers, path, signal }: Post): Promise<PostAnswer> {
    if (this.#isClosed) return Promise.reject(new Error('the connections are closed'));
    const { connectMs, pauseMs, proxy, tls, url } = this.#options;
    const request = http.request({
      // The agent reuses connections of the same certificates only.
      ...urlToHttpOptions(url),
      ...tls?.(),
      agent: this.#agent,
      method: 'POST',
      path,
      headers,
      signal,
    });
    const post = new OpenPost({ request, connectMs, answerMs, pauseMs, ready: this.#ready });
    if (proxy) post.limitTunnel();
    this.#open.add(post);
    this.#isRetired = false;
    send(request, body);
    return post.answer.finally(() => {
      this.#open.delete(post);
      this.#closeRetired();
    });
  }

  get isIdle(): boolean {
    return this.#open.size === 0;
  }

  /** Closes the connections once no request is open. A later request opens new ones. */
  retire(): void {
    this.#isRetired = true;
    this.#closeRetired();
  }

  /** Breaks open requests; later ones fail. */
  close(): void {
    this.#isClosed = true;
    for (const post of this.#open) post.fail(new Error('the connection was closed'));
    this.#agent.destroy();
  }

  #closeRetired(): void {
    if (this.#isRetired && this.isIdle) this.#agent.destroy();
  }
}

function send(request: ClientRequest, body: Post['body']): void {
  if (typeof body === 'string') {
    request.end(body);
    return;
  }
  const bytes = body.reduce((sum, { length }) => sum + length, 0);
  if (bytes <= JOIN_BYTES) {
    request.end(Buffer.concat(body));
    return;
  }
  request.setHeader('content-length', bytes);
  for (const piece of body) request.write(piece);
  request.end();
}

interface OpenPostOptions {
  request: ClientRequest;
  connectMs: number;
  answerMs: number;
  pauseMs: number;
  ready: WeakSet<Socket>;
}

/** A request until its end. Its only timer limits the connection, then the answer, then each pause. */
class OpenPost {
  readonly answer: Promise<PostAnswer>;
  readonly #options: OpenPostOptions;
  readonly #settle = Promise.withResolvers<PostAnswer>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: OpenPostOptions) {
    this.#options = options;
    const { request } = options;
    this.answer = this.#settle.promise.finally(() => clearTimeout(this.#timer));
    request.on('socket', (socket) => this.#await(socket));
    request.on('response', (response) => this.#read(response));
    request.on('error', (error) => this.fail(error));
  }

  /** Node hands out a socket only after the proxy has opened the tunnel. */
  limitTunnel(): void {
    this.#limit(this.#options.connectMs, 'opening the connection');
  }

  fail(error: Error): void {
    this.#settle.reject(error);
    this.#options.request.destroy();
  }

  #await(socket: Socket): void {
    const { answerMs, connectMs, ready } = this.#options;
    if (ready.has(socket)) {
      this.#limit(answerMs, 'waiting for the answer');
      return;
    }
    this.#limit(connectMs, 'opening the connection');
    socket.once('encrypted' in socket ? 'secureConnect' : 'connect', () => {
      ready.add(socket);
      this.#limit(answerMs, 'waiting for the answer');
    });
  }

  #read(response: IncomingMessage): void {
    const body = new AnswerBody(Number(response.headers['content-length']));
    const timer = this.#limit(this.#options.pauseMs, 'reading the answer');
    response.on('data', (piece: Buffer) => {
      body.add(piece);
      timer.refresh();
    });
    response.on('error', (error) => this.fail(error));
    response.on('end', () => {
      const { headers, statusCode: status = 0 } = response;
      this.#settle.resolve({ status, headers, body: body.whole() });
    });
  }

  #limit(ms: number, what: string): NodeJS.Timeout {
    clearTimeout(this.#timer);
    const timer = setTimeout(() => this.fail(new Error(`${what} timed out after ${ms} ms`)), ms);
    this.#timer = timer;
    return timer;
  }
}

/** Sizes that are worth a buffer from the start; a larger Content-Length is not trusted. */
const COLLECTED = { minBytes: 65_536, maxBytes: 64 * 1_048_576 };

/** Collects large answers in place and frees each piece at once, which otherwise waits for a garbage collection. */
class AnswerBody {
  readonly #pieces: Uint8Array[] = [];
  readonly #bytes: Buffer | undefined;
  #at = 0;

  /** @param announced NaN if the length is unknown */
  constructor(announced: number) {
    const isCollected = announced >= COLLECTED.minBytes && announced <= COLLECTED.maxBytes;
    if (isCollected) this.#bytes = Buffer.allocUnsafeSlow(announced);
  }

  add(piece: Buffer): void {
    if (!this.#bytes) {
      this.#pieces.push(piece);
      return;
    }
    // Node's parser passes on no more than the announced length.
    this.#bytes.set(piece, this.#at);
    this.#at += piece.length;
    giveBack(piece);
  }

  whole(): Uint8Array {
    return this.#bytes?.subarray(0, this.#at) ?? Buffer.concat(this.#pieces);
  }
}
