// WorkerLink over HTTP: one request per call, long polls included. The link only carries; the
// worker decides when to repeat a call. wire/ defines paths and frames, http-errors.ts translates
// errors.
import type { Log } from '../../base/log.ts';
import {
  decodeFrames,
  encodeFrames,
  FRAMES_MEDIA_TYPE,
  FrameError,
} from '../../wire/link/frames.ts';
import {
  type Lease,
  LinkError,
  type RenewReply,
  type RenewRequest,
  type ReportReply,
  type ReportRequest,
  type TakeRequest,
  type WorkerBye,
  type WorkerHello,
  type WorkerLink,
  type WorkerWelcome,
} from '../../wire/link/worker-link.ts';
import { fillPath } from '../../wire/route.ts';
import { WORKER_HEADERS, WORKER_ROUTES, type WorkerVerb } from '../../wire/routes.ts';
import {
  AnswerError,
  readLeaseHeader,
  readRenewReply,
  readReportReplies,
  readWelcome,
} from '../link-answers.ts';
import { Connections, type PostAnswer } from './connection-pool.ts';
import { describeCallFailure, toAnswerError } from './http-errors.ts';

const JSON_MEDIA_TYPE = 'application/json';

/** Slowest link for which a body's time limit is computed, bytes per ms; 20 MB get 210 s. */
const SLOW_LINK_BYTES_PER_MS = 100;

export interface HttpLinkTls {
  /** PEM of the authorities to trust instead of the system's. */
  ca?: string;
  /** PEM of the client's certificate and key, if the platform requires them. */
  cert?: string;
  key?: string;
  /** Name in the platform's certificate, if it differs from the URL's. */
  servername?: string;
}

export interface HttpLinkOptions {
  /** URL of the platform, http or https; a path is a prefix of all routes. */
  url: string;
  endpointId: string;
  /** Sent as a bearer token. */
  key: string;
  log: Log;
  tls?: HttpLinkTls;
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

interface VerbCall {
  verb: WorkerVerb;
  pool: Connections;
  body: string | Uint8Array;
  /** Default: JSON. */
  mediaType?: string;
  headers?: Record<string, string>;
  /** Wait requested by the call itself, ms. Default 0. */
  waitMs?: number;
  signal?: AbortSignal;
}

/** @throws TypeError if the URL is invalid or not http or https */
export function createHttpLink(options: HttpLinkOptions): HttpLink {
  return new PooledHttpLink(options);
}

class PooledHttpLink implements HttpLink {
  readonly #options: HttpLinkOptions;
  readonly #prefix: string;
  readonly #answerMarginMs: number;
  /**
   * A separate pool for each verb that waits or carries much data, so that none queues behind
   * another.
   */
  readonly #takes: Connections;
  readonly #renewals: Connections;
  readonly #reports: Connections;
  readonly #controlCalls: Connections;

  constructor(options: HttpLinkOptions) {
    const url = new URL(options.url);
    if (url.protocol !== 'http:' && url.protocol !== 'https:') {
      throw new TypeError(`the platform's URL must be http or https: ${options.url}`);
    }
    const { answerMarginMs = 15_000, connectMs = 10_000, tls } = options;
    this.#options = options;
    this.#answerMarginMs = answerMarginMs;
    this.#prefix = url.pathname.replace(/\/+$/, '');
    // Two connections: an abandoned one may still be closing, and a renewal that names new leases
    // is sent beside the waiting one.
    const openPool = () =>
      new Connections({ url, tls, max: 2, connectMs, pauseMs: answerMarginMs });
    this.#takes = openPool();
    this.#renewals = openPool();
    this.#reports = openPool();
    this.#controlCalls = openPool();
  }

  async hello(hello: WorkerHello): Promise<WorkerWelcome> {
    const body = JSON.stringify(hello);
    return this.#parse(
      await this.#call({ verb: 'hello', pool: this.#controlCalls, body }),
      readWelcome,
    );
  }

  async take(request: TakeRequest, signal: AbortSignal): Promise<Lease[]> {
    const { waitMs } = request;
    const body = JSON.stringify(request);
    const answer = await this.#call({ verb: 'take', pool: this.#takes, body, waitMs, signal });
    return answer.status === 204 ? [] : this.#parseLeases(answer);
  }

  async renew(request: RenewRequest, signal: AbortSignal): Promise<RenewReply> {
    const { waitMs } = request;
    const body = JSON.stringify(request);
    const answer = await this.#call({ verb: 'renew', pool: this.#renewals, body, waitMs, signal });
    return this.#parse(answer, readRenewReply);
  }

  async report({ workerId, incarnation, reports }: ReportRequest): Promise<ReportReply[]> {
    const frames = reports.map(({ body, ...header }) => ({ header, body }));
    const answer = await this.#call({
      verb: 'report',
      pool: this.#reports,
      body: Buffer.concat(encodeFrames(frames)),
      mediaType: FRAMES_MEDIA_TYPE,
      headers: {
        [WORKER_HEADERS.worker]: workerId,
        [WORKER_HEADERS.incarnation]: String(incarnation),
      },
    });
    const answers = this.#parse(answer, readReportReplies);
    if (answers.length === reports.length) return answers;
    throw this.#rejectAnswer(`${answers.length} answers to ${reports.length} reports`);
  }

  async bye(bye: WorkerBye): Promise<void> {
    await this.#call({ verb: 'bye', pool: this.#controlCalls, body: JSON.stringify(bye) });
  }

  async close(): Promise<void> {
    const pools = [this.#takes, this.#renewals, this.#reports, this.#controlCalls];
    for (const pool of pools) pool.close();
  }

  async #call(call: VerbCall): Promise<PostAnswer> {
    const { verb, pool, body, mediaType = JSON_MEDIA_TYPE, headers, waitMs = 0, signal } = call;
    const { endpointId, key } = this.#options;
    const travelMs = Math.ceil(body.length / SLOW_LINK_BYTES_PER_MS);
    let answer: PostAnswer;
    try {
      answer = await pool.post({
        path: this.#prefix + fillPath(WORKER_ROUTES[verb], { endpoint: endpointId }),
        headers: { ...headers, authorization: `Bearer ${key}`, 'content-type': mediaType },
        body,
        answerMs: waitMs + travelMs + this.#answerMarginMs,
        signal,
      });
    } catch (cause) {
      const why = signal?.aborted ? 'cancelled by the caller' : describeCallFailure(cause);
      throw new LinkError('unavailable', `${verb}: ${why}`, { cause });
    }
    const { status, body: answered } = answer;
    if (status >= 200 && status < 300) return answer;
    const retryAfter = answer.headers['retry-after'];
    throw toAnswerError({ verb, status, body: answered, retryAfter });
  }

  #parse<T>({ body }: PostAnswer, read: (value: unknown) => T): T {
    let value: unknown;
    try {
      value = JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString());
    } catch {
      throw this.#rejectAnswer('it is not JSON');
    }
    try {
      return read(value);
    } catch (error) {
      throw error instanceof AnswerError ? this.#rejectAnswer(error.message) : error;
    }
  }

  #parseLeases({ headers, body }: PostAnswer): Lease[] {
    const mediaType = headers['content-type']?.split(';')[0]?.trim() ?? '';
    if (mediaType !== FRAMES_MEDIA_TYPE) {
      throw this.#rejectAnswer(`it has media type '${mediaType}'`);
    }
    try {
      return decodeFrames(body).map(({ header, body: input }, index) => ({
        ...readLeaseHeader(header, `leases[${index}]`),
        input,
      }));
    } catch (error) {
      const isUnreadable = error instanceof FrameError || error instanceof AnswerError;
      throw isUnreadable ? this.#rejectAnswer(error.message) : error;
    }
  }

  /** Cut off, or from an intermediary: a retry may succeed. */
  #rejectAnswer(why: string): LinkError {
    this.#options.log.warn({ why }, 'reading a response of the platform failed');
    return new LinkError('unavailable', `the platform's response cannot be read: ${why}`);
  }
}
