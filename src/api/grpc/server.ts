// The gRPC port: its start and its bounded end, the workers' streams and their authentication, the
// standard health service and reflection.
import type { IncomingHttpHeaders } from 'node:http2';
import {
  logVerbosity,
  Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  setLogVerbosity,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { ReflectionService } from '@grpc/reflection';
import { protoPath as HEALTH_PROTO_PATH, HealthImplementation } from 'grpc-health-check';
import { type ByteBudget, giveBack } from '../../base/byte-budget.ts';
import type { Clock } from '../../base/clock.ts';
import { FairScheduler } from '../../base/fair-scheduler.ts';
import type { Log } from '../../base/log.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { type KeyHolder, type Keys, KeyWatch } from '../../control/keys/keys.ts';
import {
  KEEPALIVE,
  MAX_MESSAGE_BYTES,
  METADATA,
  METHOD_NAME,
  PROTO_OPTIONS,
  PROTO_PATH,
  SERVICE_NAME,
} from '../../wire/link/worker-stream.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  BEARER,
  type EndpointOwners,
  identifyKey,
  isUnknown,
  requireOwnEndpoint,
  requireScope,
} from '../http/auth.ts';
import { ClientOrigins } from '../http/client-origin.ts';
import {
  completeBounds,
  DEFAULT_KEYLESS_LIMITS,
  type HttpBounds,
  type KeylessLimits,
} from '../limits/bounds.ts';
import { Connections } from '../limits/connections.ts';
import { createWorkerBudget } from '../limits/flows.ts';
import { type KeyPair, useCertificate } from '../listener.ts';
import type { WorkerRoutesOptions } from '../worker/worker-routes.ts';
import { GrpcGate, listHttp2Servers } from './grpc-gate.ts';
import { MessageBounds } from './message-bounds.ts';
import { StreamBudget } from './stream-budget.ts';
import { EXCESS, showProblem, toStatus, WorkerStream } from './worker-stream.ts';

export interface GrpcServerOptions extends WorkerRoutesOptions {
  keys: Keys;
  endpoints: EndpointOwners & Pick<Endpoints, 'isKnown' | 'resolve'>;
  log: Log;
  clock: Clock;
  host: string;
  /** 0 selects a free port. */
  port: number;
  /** PEM; with `clientCa`, clients need a certificate of these authorities. */
  tls?: { cert: string; key: string; clientCa?: string };
  /** Looks up keys and endpoints that this node does not know. Never rejects. Default: it knows all. */
  lookUp?: (() => Promise<void>) | undefined;
  /** The platform is stopping: new calls are rejected. */
  isClosing: () => boolean;
  /** For calls without a valid key: health, reflection, and streams that will be rejected. */
  keylessLimits?: Partial<KeylessLimits>;
  /** The bounds of connections and of bytes in flight apply here too. */
  bounds?: Partial<HttpBounds> | undefined;
  /** How long `close` waits for running calls before it breaks them, ms. Default 2,000. */
  closeMs?: number;
}

export interface GrpcServer {
  /** Listens. @throws the error of the system or the TLS library */
  start(): Promise<{ url: string }>;
  /** The health service answers NOT_SERVING. Streams stay, and new ones are served. */
  announceShutdown(): void;
  /**
   * Replaces the certificate, and the authorities of clients if given; open connections keep theirs.
   * @throws the error of the TLS library
   */
  useCertificate(tls: KeyPair & { clientCa?: string }): void;
  /** Ends every stream. Close the queue first, so that open questions are answered. */
  close(): Promise<void>;
}

type StreamCall = ServerDuplexStream<object, object>;

const OPEN_PATH = `/${SERVICE_NAME}/${METHOD_NAME}`;

export function createGrpcServer(options: GrpcServerOptions): GrpcServer {
  const { clock, closeMs = 2_000, host, port, tls, scheduler = new FairScheduler() } = options;
  // The library would log to standard error; its callers report errors themselves.
  setLogVerbosity(logVerbosity.NONE);
  const streams = new Set<WorkerStream>();
  const bounds = completeBounds(options.bounds);
  const budget = options.budget ?? createWorkerBudget(bounds, clock);
  const keyWatch = new KeyWatch(options);
  const open = { ...options, bounds, budget, keyWatch, scheduler };
  let ca = tls?.clientCa;
  const server = new Server({
    ...KEEPALIVE,
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_concurrent_streams': bounds.maxConnectionStreams,
  });
  const connections = new Connections({ bounds, clock, log: options.log });
  const gate = new GrpcGate({
    connections,
    bounds,
    budget,
    scheduler,
    clock,
    log: options.log,
    origins: new ClientOrigins(bounds),
    limits: { ...DEFAULT_KEYLESS_LIMITS, ...options.keylessLimits },
    findUser: (headers) => findUser(headers, options.keys),
    lookUp: (headers) => (namesUnknown(headers, options) ? options.lookUp?.() : undefined),
  });
  const definitions = loadSync([PROTO_PATH, HEALTH_PROTO_PATH], PROTO_OPTIONS);
  const service = definitions[SERVICE_NAME];
  if (!service || 'format' in service) throw new Error(`${PROTO_PATH} has no ${SERVICE_NAME}`);
  const opening = service[METHOD_NAME];
  if (opening) {
    opening.responseSerialize = serializeOneByOne(opening.responseSerialize);
    const messageBounds = new MessageBounds(definitions, 'ToPlatform');
    opening.requestDeserialize = decodeWithin(messageBounds, opening.requestDeserialize);
  }
  server.addService(service, {
    [METHOD_NAME]: (call: StreamCall) => openStream(call, open, streams),
  });
  const health = new HealthImplementation({ '': 'SERVING', [SERVICE_NAME]: 'SERVING' });
  health.addToServer(server);
  new ReflectionService(definitions).addToServer(server);
  const announceShutdown = () => {
    for (const name of ['', SERVICE_NAME]) health.setStatus(name, 'NOT_SERVING');
  };
  return {
    async start() {
      const bound = await bind(server, `${bracket(host)}:${port}`, createCredentials(tls));
      gate.guard(server);
      for (const http2Server of listHttp2Servers(server)) connections.watch(http2Server);
      const name = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
      return { url: `${tls ? 'grpcs' : 'grpc'}://${bracket(name)}:${bound}` };
    },
    announceShutdown,
    useCertificate({ cert, clientCa = ca, key }) {
      ca = clientCa;
      for (const http2Server of listHttp2Servers(server)) {
        useCertificate(http2Server, { cert, key, ...(ca !== undefined && { ca }) });
      }
    },
    async close() {
      announceShutdown();
      const cancel = clock.after(closeMs, () => server.forceShutdown());
      const closed = new Promise((resolve) => server.tryShutdown(resolve));
      for (const stream of streams) stream.end(describeClosing());
      await closed;
      cancel();
      connections.stop();
      keyWatch.close();
    },
  };
}

/** The library copies each message before it requests the next one. */
function serializeOneByOne(serialize: (message: object) => Buffer): (message: object) => Buffer {
  let last: Buffer = Buffer.alloc(0);
  return (message) => {
    giveBack(last);
    last = serialize(message);
    return last;
  };
}

/** A message beyond its bounds becomes an `excess`, which is answered like the original. */
function decodeWithin(
  bounds: MessageBounds,
  decode: (bytes: Buffer) => object,
): (bytes: Buffer) => object {
  return (bytes) => {
    const excess = bounds.findExcess(bytes);
    if (excess === undefined) return decode(bytes);
    return { call: bounds.readCall(bytes), kind: EXCESS, [EXCESS]: excess };
  };
}

type StreamOpenOptions = GrpcServerOptions & {
  bounds: HttpBounds;
  budget: ByteBudget;
  keyWatch: KeyWatch;
  scheduler: FairScheduler;
};

function openStream(
  call: StreamCall,
  options: StreamOpenOptions,
  streams: Set<WorkerStream>,
): void {
  try {
    const { allowance, bounds, clock, endpoints, log, noteCrash } = options;
    const { userId } = identifyCaller(call, options);
    const endpoint = endpoints.resolve(userId, readEndpoint(call));
    const caller = admitCaller(call, endpoint, options);
    const { keyId } = caller;
    const link = options.linkTo(endpoint, caller, readMetadata(call, METADATA.key));
    if (!link) throw new ProblemError('not_found', `endpoint ${endpoint} not found`);
    const stream = new WorkerStream(call, {
      link,
      log,
      clock,
      bounds,
      budget: new StreamBudget(options.budget, userId),
      schedule: () => options.scheduler.take(() => ({ group: 'users', owner: userId })),
      async admit() {
        admitCaller(call, endpoint, options);
        await allowance?.countCall(keyId);
      },
      admitHello: (workerId, hello) =>
        allowance?.admit(caller, { endpointId: endpoint, workerId }, hello) ?? hello(),
      noteCrash: (bye) => noteCrash(endpoint, bye),
    });
    streams.add(stream);
    call.once('close', () => streams.delete(stream));
    // If the key is revoked while a take waits, its worker must no longer get a job.
    call.once(
      'close',
      options.keyWatch.watch(keyId, () => stream.abortOpen()),
    );
    // Tells the worker, and intermediaries, that the stream is open.
    call.sendMetadata(new Metadata());
  } catch (error) {
    call.emit('error', toStatus(showProblem(error, options.log)));
  }
}

/** Another node may have created the key or the endpoint a moment ago. */
function namesUnknown(headers: IncomingHttpHeaders, options: GrpcServerOptions): boolean {
  const { ':path': path, [METADATA.endpoint]: endpoint, [METADATA.key]: authorization } = headers;
  if (path !== OPEN_PATH || authorization === undefined) return false;
  return isUnknown({ authorization, endpoint: decodeName(endpoint) }, options);
}

/** User of a worker's stream with a valid key; `admitCaller` checks what the key allows. */
function findUser(headers: IncomingHttpHeaders, keys: Keys): string | undefined {
  const { ':path': path, [METADATA.key]: presented } = headers;
  if (path !== OPEN_PATH || presented === undefined) return undefined;
  return keys.authenticate(presented.replace(BEARER, ''))?.userId;
}

/** @throws ProblemError `unavailable`, `unauthorized`, `not_found`, `forbidden` */
function admitCaller(call: StreamCall, endpoint: string, options: GrpcServerOptions): KeyHolder {
  const holder = identifyCaller(call, options);
  requireOwnEndpoint(holder, endpoint, options.endpoints);
  requireScope(holder, 'worker', endpoint);
  return holder;
}

/** @throws ProblemError `unavailable`, `unauthorized` */
function identifyCaller(call: StreamCall, { isClosing, keys }: GrpcServerOptions): KeyHolder {
  if (isClosing()) throw describeClosing();
  const presented = readMetadata(call, METADATA.key);
  if (presented === undefined) {
    const how = `send "${METADATA.key}: Bearer <key>" in the metadata`;
    throw new ProblemError('unauthorized', `no API key: ${how}`);
  }
  return identifyKey(keys, presented);
}

/** @throws ProblemError `invalid` */
function readEndpoint(call: StreamCall): string {
  const name = decodeName(readMetadata(call, METADATA.endpoint));
  if (name !== undefined) return name;
  throw new ProblemError('invalid', `the metadata must name the endpoint: ${METADATA.endpoint}`);
}

/** Metadata that cannot be decoded counts as missing. */
function decodeName(text: string | string[] | undefined): string | undefined {
  try {
    return typeof text === 'string' ? decodeURIComponent(text) : undefined;
  } catch {
    return undefined;
  }
}

function readMetadata(call: StreamCall, name: string): string | undefined {
  const [value] = call.metadata.get(name);
  return typeof value === 'string' ? value : undefined;
}

function describeClosing(): ProblemError {
  return new ProblemError('unavailable', 'the platform is stopping', { retryAfterMs: 1_000 });
}

function createCredentials(tls: GrpcServerOptions['tls']): ServerCredentials {
  if (!tls) return ServerCredentials.createInsecure();
  const { cert, clientCa, key } = tls;
  const pair = { private_key: Buffer.from(key), cert_chain: Buffer.from(cert) };
  const roots = clientCa === undefined ? null : Buffer.from(clientCa);
  return ServerCredentials.createSsl(roots, [pair], roots !== null);
}

function bind(server: Server, address: string, how: ServerCredentials): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, how, (error, port) => (error ? reject(error) : resolve(port)));
  });
}

function bracket(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
