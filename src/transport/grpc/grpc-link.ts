// The worker link over gRPC: a stream to one URL, opened with the first question and again after its end. The platform
// answers a take, which is credit, with leases, and an open renew with a cancellation. grpc-stream.ts is the stream.
import { createSecureContext } from 'node:tls';
import {
  type ChannelCredentials,
  type ChannelOptions,
  Client,
  credentials,
  logVerbosity,
  Metadata,
  setLogVerbosity,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { systemClock } from '../../base/clock.ts';
import {
  type ChooseProxy,
  describeProxy,
  nameProxy,
  noProxy,
} from '../../base/net/outgoing-proxy.ts';
import { type LinkCall, refuseAnswer } from '../../wire/link/carried-link.ts';
import { LinkError } from '../../wire/link/worker-link.ts';
import {
  addBodySizes,
  KEEPALIVE,
  MAX_MESSAGE_BYTES,
  METADATA,
  METHOD_NAME,
  PROTO_OPTIONS,
  PROTO_PATH,
  SERVICE_NAME,
  VERB_KINDS,
} from '../../wire/link/worker-stream.ts';
import {
  ANSWER_MARGIN_MS,
  type Carrier,
  type LinkOptions,
  type LinkTls,
  OWNER_CONNECT_MS,
  type RoutedLink,
  routeLink,
} from '../routed-link.ts';
import { GrpcStream, type Question, type StreamClock } from './grpc-stream.ts';

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
  // The library's rules for proxies differ from those of the other carriers: see `useProxy`.
  'grpc.enable_http_proxy': 0,
  'grpc.service_config_disable_resolution': 1,
  'grpc.use_local_subchannel_pool': 1,
};

export interface GrpcLinkOptions extends LinkOptions {
  /** Default: the machine's clock. */
  clock?: StreamClock;
}

/** @throws TypeError if the URL or a certificate is unusable */
export function createGrpcLink(options: GrpcLinkOptions): RoutedLink {
  const { answerMarginMs = ANSWER_MARGIN_MS, chooseProxy = noProxy, clock = systemClock } = options;
  const { endpointId, key, log, tls, url } = options;
  const rest = { endpointId, key, tls, clock, chooseProxy };
  return routeLink({
    configured: new GrpcTarget({ ...rest, url }),
    rules: { configured: url, carrier: 'grpc' },
    open: (owner) => new GrpcTarget({ ...rest, url: owner, connectMs: OWNER_CONNECT_MS }),
    clock,
    log,
    answerMarginMs,
  });
}

interface GrpcTargetOptions {
  /** grpc, http, grpcs or https; without a path. */
  url: string;
  endpointId: string;
  key: string;
  /** Returns another object if the certificates have changed. */
  tls: (() => LinkTls) | undefined;
  clock: StreamClock;
  chooseProxy: ChooseProxy;
  /** Time for the first connection, ms. Default: the library's. */
  connectMs?: number;
}

class GrpcTarget implements Carrier {
  readonly #options: GrpcTargetOptions;
  readonly #method = loadMethod();
  readonly #proxy: URL | undefined;
  readonly #isSecure: boolean;
  readonly #target: string;
  readonly #channelOptions: ChannelOptions;
  /** The certificates of `#credentials`. */
  #tls: LinkTls | undefined;
  #credentials: ChannelCredentials;
  #client: Client | undefined;
  #stream: GrpcStream | undefined;
  #connecting: Promise<void> | undefined;
  /** Questions without an answer. */
  #open = 0;
  #isClosed = false;
  #isRetired = false;

  /** @throws TypeError if the URL or a certificate is unusable */
  constructor(options: GrpcTargetOptions) {
    this.#options = options;
    // The library writes lines of its own; the errors have their content.
    setLogVerbosity(logVerbosity.NONE);
    const { host, isSecure } = readUrl(options.url);
    this.#proxy = options.chooseProxy(new URL(options.url));
    this.#isSecure = isSecure;
    this.#credentials = this.#createCredentials();
    const { target, ...route } = this.#proxy
      ? useProxy(this.#proxy, host)
      : { target: `dns:${host}` };
    this.#target = target;
    this.#channelOptions = { ...CHANNEL_OPTIONS, ...route };
  }

  get isIdle(): boolean {
    return this.#open === 0;
  }

  /** @throws LinkError */
  async ask(call: LinkCall, limitMs: number) {
    const { answer, list } = VERB_KINDS[call.verb];
    const question = toQuestion(call, limitMs);
    this.#open += 1;
    this.#isRetired = false;
    try {
      if (this.#options.connectMs !== undefined) await this.#connect(this.#options.connectMs);
      const { bodies, content, kind, ownerUrl } = await this.#openStream().ask(question);
      if (kind !== answer) throw refuseAnswer(`'${kind}' does not answer '${question.kind}'`);
      return { content: list ? readMember(content, list) : content, bodies, ownerUrl };
    } finally {
      this.#open -= 1;
      this.#closeRetired();
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#stream?.end(new LinkError('unavailable', 'the link was closed'));
    this.#dropClient();
  }

  retire(): void {
    this.#isRetired = true;
    this.#closeRetired();
  }

  #closeRetired(): void {
    if (!this.#isRetired || !this.isIdle) return;
    this.#stream?.end(new LinkError('unavailable', 'the stream was closed'));
    this.#dropClient();
  }

  /** Once. @throws LinkError */
  #connect(connectMs: number): Promise<void> {
    this.#connecting ??= new Promise((resolve, reject) => {
      this.#requireOpen().waitForReady(Date.now() + connectMs, (error) => {
        if (!error) return resolve();
        reject(
          new LinkError(
            'unavailable',
            `no connection within ${connectMs} ms${describeProxy(this.#proxy)}`,
          ),
        );
      });
    });
    return this.#connecting;
  }

  /** Returns the current stream or opens a new one. @throws LinkError */
  #openStream(): GrpcStream {
    if (this.#stream) return this.#stream;
    const client = this.#requireOpen();
    const { path, requestSerialize, responseDeserialize } = this.#method;
    const call = client.makeBidiStreamRequest(
      path,
      requestSerialize,
      responseDeserialize,
      this.#describeCaller(),
    );
    const stream = new GrpcStream({
      call,
      clock: this.#options.clock,
      via: describeProxy(this.#proxy),
      onEnd: (how) => {
        if (this.#stream === stream) this.#stream = undefined;
        // It may hang while it connects, or on a half-open connection.
        if (how === 'silent') this.#dropClient();
      },
    });
    this.#stream = stream;
    return stream;
  }

  #requireOpen(): Client {
    if (this.#isClosed) throw new LinkError('unavailable', 'the link was closed');
    if (this.#options.tls?.() !== this.#tls) {
      this.#credentials = this.#createCredentials();
      this.#dropClient();
    }
    this.#client ??= new Client(this.#target, this.#credentials, this.#channelOptions);
    return this.#client;
  }

  /** @throws TypeError */
  #createCredentials(): ChannelCredentials {
    this.#tls = this.#options.tls?.();
    return this.#isSecure ? secureChannel(this.#tls) : credentials.createInsecure();
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
}

function toQuestion(call: LinkCall, patienceMs: number): Question {
  const { signal, waitMs = 0 } = call;
  const rest = { kind: VERB_KINDS[call.verb].question, waitMs, patienceMs, signal };
  if (call.verb !== 'report') return { ...rest, content: call.content };
  const { bodies, content } = call;
  return {
    ...rest,
    content: { ...content, reports: addBodySizes(content.reports, bodies) },
    bodies,
  };
}

function readMember(content: unknown, name: string): unknown {
  return new Map<string, unknown>(Object.entries(Object(content))).get(name);
}

/** A tunnel, also for a connection without TLS: a proxy does not pass on HTTP/2. @throws TypeError */
function useProxy(proxy: URL, host: string) {
  const { hostname, password, port, protocol, username } = proxy;
  if (protocol !== 'http:') {
    throw new TypeError(`gRPC needs an http:// URL of the proxy, got ${nameProxy(proxy)}`);
  }
  const login = decodeURIComponent(`${username}:${password}`);
  return {
    target: `dns:${hostname}:${port || '80'}`,
    'grpc.http_connect_target': `dns:${host}`,
    'grpc.default_authority': host,
    ...(username !== '' && { 'grpc.http_connect_creds': login }),
  };
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
function readUrl(text: string): { isSecure: boolean; host: string } {
  const url = new URL(text);
  const scheme = SCHEMES.get(url.protocol);
  if (!scheme) throw new TypeError(`the platform's URL must be grpc or grpcs: ${text}`);
  if (!url.hostname) throw new TypeError(`the platform's URL has no host: ${text}`);
  if (url.pathname.replace(/^\/$/, '') !== '') {
    throw new TypeError(`the URL of a gRPC port must have no path: ${text}`);
  }
  return { isSecure: scheme.isSecure, host: `${url.hostname}:${url.port || scheme.port}` };
}

/** @throws TypeError */
function secureChannel(tls: LinkTls = {}) {
  try {
    return credentials.createFromSecureContext(createSecureContext(tls));
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new TypeError(`the certificates cannot be used: ${reason}`, { cause });
  }
}
