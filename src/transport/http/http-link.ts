// WorkerLink over HTTP: one request per call, long polls included. The link only carries; the
// worker decides when to repeat a call, except that owner-route.ts repeats what the owner of the endpoint has not
// answered. wire/ defines paths and frames, http-errors.ts translates errors.
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type ChooseProxy, describeProxy, noProxy } from '../../base/net/outgoing-proxy.ts';
import { adviseTrust, hintAtScheme, TRUST_ADVICE } from '../../base/net/request-hints.ts';
import { type Field, FieldFault } from '../../wire/link/fields.ts';
import {
  decodeFrames,
  encodeFrames,
  FRAMES_MEDIA_TYPE,
  FrameError,
} from '../../wire/link/frames.ts';
import {
  type Lease,
  LinkError,
  leaseHeaders,
  type RenewReply,
  type RenewRequest,
  type ReportReply,
  type ReportRequest,
  renewReply,
  reportReplies,
  type TakeRequest,
  type WorkerBye,
  type WorkerHello,
  type WorkerLink,
  type WorkerWelcome,
  workerWelcome,
} from '../../wire/link/worker-link.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { WORKER_HEADERS, WORKER_ROUTES, type WorkerVerb } from '../../wire/routes/routes.ts';
import { type Answered, OwnerRoute } from '../owner-route.ts';
import { describeCallFailure, toAnswerError } from './http-errors.ts';
import { HttpTarget, type PostAnswer } from './http-target.ts';

const JSON_MEDIA_TYPE = 'application/json';
const NO_BYTES = new Uint8Array(0);
const OWNER_HEADER = 'millrace-owner' satisfies Lowercase<typeof WORKER_HEADERS.owner>;
/** Time to connect to the owner of the endpoint, ms: the call then goes to the configured URL, within its lease. */
const OWNER_CONNECT_MS = 3_000;

/** Slowest link for which a body's time limit is computed, bytes per ms; 20 MB get 210 s. */
const SLOW_LINK_BYTES_PER_MS = 100;

interface HttpLinkTls {
  /** PEM of the authorities to trust instead of the system's. */
  ca?: string;
  /** PEM of the client's certificate and key, if the platform requires them. */
  cert?: string;
  key?: string;
  /** Name in the platform's certificate, if it differs from the URL's. */
  servername?: string;
}

interface HttpLinkOptions {
  /** URL of the platform, http or https; a path is a prefix of all routes. */
  url: string;
  endpointId: string;
  /** Sent as a bearer token. */
  key: string;
  log: Log;
  /** Read for each request: a renewed certificate is used for new connections. */
  tls?: () => HttpLinkTls;
  /** Default: no proxy. */
  chooseProxy?: ChooseProxy;
  /** Time to open a connection, ms. Default 10,000. */
  connectMs?: number;
  /**
   * Time that an answer may take in addition to the requested wait and the request body's transfer
   * over a slow link; also the longest pause between two pieces of its body. ms. Default 15,000.
   * More than the worker's own limit for a renewal (5 s), which applies first.
   */
  answerMarginMs?: number;
}

export interface HttpLink extends WorkerLink {
  /** Breaks open calls; later calls fail. */
  close(): Promise<void>;
}

interface VerbCall<R> {
  verb: WorkerVerb;
  body: string | readonly Uint8Array[];
  /** Default: JSON. */
  mediaType?: string;
  headers?: Record<string, string>;
  /** Wait requested by the call itself, ms. Default 0. */
  waitMs?: number;
  signal?: AbortSignal;
  /** Reads a successful answer. @throws LinkError */
  read: (answer: PostAnswer) => R;
}

/** @throws TypeError if the URL is invalid or not http or https */
export function createHttpLink(options: HttpLinkOptions): HttpLink {
  return new PooledHttpLink(options);
}

class PooledHttpLink implements HttpLink {
  readonly #options: HttpLinkOptions;
  readonly #answerMarginMs: number;
  readonly #route: OwnerRoute<HttpTarget>;

  constructor(options: HttpLinkOptions) {
    const url = new URL(options.url);
    if (url.protocol !== 'http:' && url.protocol !== 'https:') {
      throw new TypeError(`the platform's URL must be http or https: ${options.url}`);
    }
    const {
      answerMarginMs = 15_000,
      chooseProxy = noProxy,
      connectMs = 10_000,
      log,
      tls,
    } = options;
    this.#options = options;
    this.#answerMarginMs = answerMarginMs;
    const open = (to: URL, limitMs: number) =>
      new HttpTarget({
        url: to,
        tls,
        connectMs: limitMs,
        pauseMs: answerMarginMs,
        proxy: chooseProxy(to),
      });
    const ownerConnectMs = Math.min(connectMs, OWNER_CONNECT_MS);
    this.#route = new OwnerRoute({
      configured: open(url, connectMs),
      rules: { configured: options.url, carrier: 'http' },
      open: (owner) => open(new URL(owner), ownerConnectMs),
      clock: systemClock,
      log,
    });
  }

  hello(hello: WorkerHello): Promise<WorkerWelcome> {
    const read = (answer: PostAnswer) => this.#parse(answer, workerWelcome);
    return this.#call({ verb: 'hello', body: JSON.stringify(hello), read });
  }

  take(request: TakeRequest, signal: AbortSignal): Promise<Lease[]> {
    const { waitMs } = request;
    const body = JSON.stringify(request);
    const read = (answer: PostAnswer) => (answer.status === 204 ? [] : this.#parseLeases(answer));
    return this.#call({ verb: 'take', body, waitMs, signal, read });
  }

  renew(request: RenewRequest, signal: AbortSignal): Promise<RenewReply> {
    const { waitMs } = request;
    const body = JSON.stringify(request);
    const read = (answer: PostAnswer) => this.#parse(answer, renewReply);
    return this.#call({ verb: 'renew', body, waitMs, signal, read });
  }

  report({ workerId, incarnation, reports }: ReportRequest): Promise<ReportReply[]> {
    const frames = reports.map(({ body, ...header }) => ({ header, body }));
    return this.#call({
      verb: 'report',
      body: encodeFrames(frames),
      mediaType: FRAMES_MEDIA_TYPE,
      headers: {
        [WORKER_HEADERS.worker]: workerId,
        [WORKER_HEADERS.incarnation]: String(incarnation),
      },
      read: (answer) => {
        const answers = this.#parse(answer, reportReplies);
        if (answers.length === reports.length) return answers;
        throw this.#rejectAnswer(`${answers.length} answers to ${reports.length} reports`);
      },
    });
  }

  async bye(bye: WorkerBye): Promise<void> {
    await this.#call({ verb: 'bye', body: JSON.stringify(bye), read: () => undefined });
  }

  async close(): Promise<void> {
    this.#route.close();
  }

  #call<R>(call: VerbCall<R>): Promise<R> {
    const { signal, waitMs = 0 } = call;
    return this.#route.call((target) => this.#post(target, call), { waitMs, signal });
  }

  /** @throws LinkError */
  async #post<R>(target: HttpTarget, call: VerbCall<R>): Promise<Answered<R>> {
    const { verb, body, mediaType = JSON_MEDIA_TYPE, headers, waitMs = 0, signal } = call;
    const { endpointId, key } = this.#options;
    const path = fillPath(WORKER_ROUTES[verb], { endpoint: endpointId });
    const travelMs = Math.ceil(countBytes(body) / SLOW_LINK_BYTES_PER_MS);
    let answer: PostAnswer;
    try {
      answer = await target.post(verb, {
        path,
        headers: { ...headers, authorization: `Bearer ${key}`, 'content-type': mediaType },
        body,
        answerMs: waitMs + travelMs + this.#answerMarginMs,
        signal,
      });
    } catch (cause) {
      const failure = adviseTrust(describeCallFailure(cause), TRUST_ADVICE);
      const why = signal?.aborted ? 'cancelled by the caller' : failure;
      // Later calls may be cut by a restart.
      const hint = verb === 'hello' ? hintAtScheme(cause, this.#options.url) : '';
      const via = describeProxy(target.proxy);
      throw new LinkError('unavailable', `${verb}: ${why}${hint}${via}`, { cause });
    }
    const { status, body: answered } = answer;
    if (status >= 200 && status < 300) {
      const owner = answer.headers[OWNER_HEADER];
      return { value: call.read(answer), ownerUrl: typeof owner === 'string' ? owner : undefined };
    }
    const { location, 'retry-after': retryAfter } = answer.headers;
    const { proxy, url } = target;
    throw toAnswerError({ verb, status, body: answered, retryAfter, location, url, path, proxy });
  }

  #parse<T>({ body }: PostAnswer, message: Field<T>): T {
    let value: unknown;
    try {
      value = JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString());
    } catch {
      throw this.#rejectAnswer('it is not JSON');
    }
    try {
      return message.read(value);
    } catch (error) {
      throw error instanceof FieldFault ? this.#rejectAnswer(error.describe('answer')) : error;
    }
  }

  #parseLeases({ headers, body }: PostAnswer): Lease[] {
    const mediaType = headers['content-type']?.split(';')[0]?.trim() ?? '';
    if (mediaType !== FRAMES_MEDIA_TYPE) {
      throw this.#rejectAnswer(`it has media type '${mediaType}'`);
    }
    try {
      const frames = decodeFrames(body);
      const leases = leaseHeaders.read(frames.map(({ header }) => header));
      return leases.map((lease, index) => ({ ...lease, input: frames[index]?.body ?? NO_BYTES }));
    } catch (error) {
      if (error instanceof FieldFault) throw this.#rejectAnswer(error.describe('answer'));
      throw error instanceof FrameError ? this.#rejectAnswer(error.message) : error;
    }
  }

  /** Cut off, or from an intermediary: a retry may succeed. */
  #rejectAnswer(why: string): LinkError {
    this.#options.log.warn({ why }, 'reading a response of the platform failed');
    return new LinkError('unavailable', `the platform's response cannot be read: ${why}`);
  }
}

function countBytes(body: VerbCall<unknown>['body']): number {
  if (typeof body === 'string') return body.length;
  return body.reduce((sum, { length }) => sum + length, 0);
}
