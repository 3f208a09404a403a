// WorkerLink over one gRPC stream. The platform answers a take, which is credit, with leases, and
// an open renew with a cancellation. The link only carries; the worker decides when to repeat a
// call. grpc-stream.ts is the stream, grpc-errors.ts translates its end.
import { createSecureContext } from 'node:tls';
import { type ChannelOptions, Client, credentials, Metadata } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
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
import {
  KEEPALIVE,
  MAX_MESSAGE_BYTES,
  METADATA,
  METHOD_NAME,
  PROTO_OPTIONS,
  PROTO_PATH,
  SERVICE_NAME,
} from '../../wire/link/worker-stream.ts';
import {
  AnswerError,
  readLeaseHeaders,
  readRenewReply,
  readReportReplies,
  readWelcome,
} from '../link-answers.ts';
import { type GrpcAnswer, GrpcStream, type Question, type StreamClock } from './grpc-stream.ts';

/** Slowest link for which a payload's time limit is computed, bytes per ms; 20 MB get 210 s. */
const SLOW_LINK_BYTES_PER_MS = 100;

const CHANNEL_OPTIONS: ChannelOptions = {
  ...KEEPALIVE,
  'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
  'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
  // A broken connection is reopened after growing random waits between these bounds.
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 5_000,
  // Bounds the input data in front of a cancellation that is pushed behind it.
  'grpc-node.flow_control_window': 262_144,
  // The worker repeats unanswered calls itself, because it knows which it may repeat.
  'grpc.enable_retries': 0,
  // Like the other carriers: no proxies and no service configuration from the environment.
  'grpc.enable_http_proxy': 0,
  'grpc.service_config_disable_resolution': 1,
  'grpc.use_local_subchannel_pool': 1,
};

export interface GrpcLinkTls {
  /** PEM of the authorities to trust instead of the system's. */
  ca?: string;
  /** PEM of the client's certificate and key, if the platform requires them. */
  cert?: string;
  key?: string;
}

export interface GrpcLinkOptions {
  /** URL of the platform's gRPC port: grpc or http, or with TLS grpcs or https; without a path. */
  url: string;
  endpointId: string;
  /** Sent as a bearer token. */
  key: string;
  log: Log;
  tls?: GrpcLinkTls;
  /**
   * Time that an answer may take in addition to the requested wait and the payload's transfer over
   * a slow link; also the longest pause between two pieces of it. ms. Default 15,000.
   */
  answerMarginMs?: number;
  /** Default: the machine's clock. */
  clock?: StreamClock;
}

export interface GrpcLink extends WorkerLink {
  /** Breaks open calls; later calls fail. */
  close(): Promise<void>;
}

/** @throws TypeError if the URL or a certificate is unusable */
export function createGrpcLink(options: GrpcLinkOptions): GrpcLink {
  return new StreamLink(options);
}

interface LinkQuestion extends Pick<Question, 'kind' | 'content' | 'bodies' | 'signal'> {
  /** Wait requested by the call itself, ms. Default 0. */
  waitMs?: number;
  answer: string;
}

class StreamLink implements GrpcLink {
  readonly #options: GrpcLinkOptions;
  readonly #method = loadMethod();
  readonly #openClient: () => Client;
  #client: Client | undefined;
  #stream: GrpcStream | undefined;
  #isClosed = false;

  constructor(options: GrpcLinkOptions) {
    this.#options = options;
    const { isSecure, target } = readUrl(options.url);
    const channel = isSecure ? secureChannel(options.tls) : credentials.createInsecure();
    this.#openClient = () => new Client(target, channel, CHANNEL_OPTIONS);
  }

  async hello(content: WorkerHello): Promise<WorkerWelcome> {
    const answer = await this.#ask({ kind: 'hello', content, answer: 'welcome' });
    return this.#read(() => readWelcome(answer.content));
  }

  async take(content: TakeRequest, signal: AbortSignal): Promise<Lease[]> {
    const { waitMs } = content;
    const verb = { kind: 'credit', content, answer: 'leases', waitMs, signal } as const;
    const { bodies, content: leases } = await this.#ask(verb);
    return this.#read(() =>
      readLeaseHeaders(leases).map((header, index) => ({
        ...header,
        input: bodies[index] ?? new Uint8Array(0),
      })),
    );
  }

  async renew(content: RenewRequest, signal: AbortSignal): Promise<RenewReply> {
    const { waitMs } = content;
    const verb = { kind: 'renew', content, answer: 'renewed', waitMs, signal } as const;
    const answer = await this.#ask(verb);
    return this.#read(() => readRenewReply(answer.content));
  }

  async report({ reports, ...identity }: ReportRequest): Promise<ReportReply[]> {
    const headers = reports.map(({ body, ...header }) => ({ ...header, bodyBytes: body.length }));
    const { content } = await this.#ask({
      kind: 'reports',
      content: { ...identity, reports: headers },
      bodies: reports.map(({ body }) => body),
      answer: 'reportAnswers',
    });
    const answers = this.#read(() => readReportReplies(readMember(content, 'answers')));
    if (answers.length === reports.length) return answers;
    throw this.#rejectAnswer(`${answers.length} answers to ${reports.length} reports`);
  }

  async bye(content: WorkerBye): Promise<void> {
    await this.#ask({ kind: 'bye', content, answer: 'goodbye' });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stream?.end(new LinkError('unavailable', 'the link was closed'));
    this.#dropClient();
  }

  async #ask({ answer, waitMs = 0, ...question }: LinkQuestion): Promise<GrpcAnswer> {
    const { answerMarginMs = 15_000 } = this.#options;
    const bytes = question.bodies?.reduce((sum, body) => sum + body.length, 0) ?? 0;
    const patienceMs = waitMs + Math.ceil(bytes / SLOW_LINK_BYTES_PER_MS) + answerMarginMs;
    const given = await this.#openStream().ask({ ...question, waitMs, patienceMs });
    if (given.kind === answer) return given;
    throw this.#rejectAnswer(`'${given.kind}' does not answer '${question.kind}'`);
  }

  /** Returns the current stream or opens a new one. @throws LinkError */
  #openStream(): GrpcStream {
    if (this.#isClosed) throw new LinkError('unavailable', 'the link was closed');
    if (this.#stream) return this.#stream;
    const { path, requestSerialize, responseDeserialize } = this.#method;
    const metadata = this.#describeCaller();
    this.#client ??= this.#openClient();
    const call = this.#client.makeBidiStreamRequest(
      path,
      requestSerialize,
      responseDeserialize,
      metadata,
    );
    const stream = new GrpcStream({
      call,
      clock: this.#options.clock ?? systemClock,
      onEnd: (how) => {
        if (this.#stream === stream) this.#stream = undefined;
        // It may hang while it connects, or on a half-open connection.
        if (how === 'silent') this.#dropClient();
      },
    });
    this.#stream = stream;
    return stream;
  }

  #dropClient(): void {
    this.#client?.close();
    this.#client = undefined;
  }

  #describeCaller(): Metadata {
    const { endpointId, key } = this.#options;
    // The library's own error for such a key would quote it.
    if (!/^[\x21-\x7e]+$/.test(key)) {
      throw new LinkError('unauthorized', 'the key contains invalid characters');
    }
    const metadata = new Metadata();
    metadata.set(METADATA.key, `Bearer ${key}`);
    metadata.set(METADATA.endpoint, encodeURIComponent(endpointId));
    return metadata;
  }

  #read<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      throw error instanceof AnswerError ? this.#rejectAnswer(error.message) : error;
    }
  }

  /** The answer comes from an intermediary or a newer platform: a retry may succeed. */
  #rejectAnswer(why: string): LinkError {
    this.#options.log.warn({ why }, 'reading a response of the platform failed');
    return new LinkError('unavailable', `the platform's response cannot be read: ${why}`);
  }
}

function loadMethod() {
  const service = loadSync(PROTO_PATH, PROTO_OPTIONS)[SERVICE_NAME];
  const method = service && !('format' in service) ? service[METHOD_NAME] : undefined;
  if (!method) throw new Error(`${PROTO_PATH} has no ${SERVICE_NAME}.${METHOD_NAME}`);
  return method;
}

const SCHEMES = new Map([
  ['grpc:', { isSecure: false, port: '80' }],
  ['http:', { isSecure: false, port: '80' }],
  ['grpcs:', { isSecure: true, port: '443' }],
  ['https:', { isSecure: true, port: '443' }],
]);

/** @throws TypeError */
function readUrl(text: string): { isSecure: boolean; target: string } {
  const url = new URL(text);
  const scheme = SCHEMES.get(url.protocol);
  if (!scheme) throw new TypeError(`the platform's URL must be grpc or grpcs: ${text}`);
  if (!url.hostname) throw new TypeError(`the platform's URL has no host: ${text}`);
  if (url.pathname.replace(/^\/$/, '') !== '') {
    throw new TypeError(`the URL of a gRPC port must have no path: ${text}`);
  }
  return { isSecure: scheme.isSecure, target: `dns:${url.hostname}:${url.port || scheme.port}` };
}

/** @throws TypeError */
function secureChannel(tls: GrpcLinkTls = {}) {
  try {
    return credentials.createFromSecureContext(createSecureContext(tls));
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new TypeError(`the certificates cannot be used: ${reason}`, { cause });
  }
}

function readMember(content: unknown, name: string): unknown {
  return new Map<string, unknown>(Object.entries(Object(content))).get(name);
}
