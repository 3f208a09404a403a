// Opens the ports of a platform: HTTP for everybody, gRPC for workers. Code for gRPC, and for the limits of calls, is loaded
// only if options ask for it.
import type { ForwardingOptions } from '../api/forwarding/forwarding-options.ts';
import type { GrpcServer, GrpcServerOptions } from '../api/grpc/server.ts';
import type { ServedRequest } from '../api/http/guard.ts';
import { DEFAULT_KEYLESS_LIMITS, type KeylessLimits } from '../api/limits/bounds.ts';
import type { CreateRateCounter, RateGate, RateLimits } from '../api/limits/rate-limit.ts';
import type { KeyPair } from '../api/listener.ts';
import type { ReadFailed } from '../api/overviews.ts';
import { CONSOLE_FOLDER } from '../api/routes/console-routes.ts';
import { type ApiServer, createServer } from '../api/server.ts';
import type { WorkerAllowance, WorkerLimits } from '../api/worker/worker-allowance.ts';
import type { Clock } from '../base/clock.ts';
import { packageVersion } from '../base/package-info.ts';
import type { Keys } from '../control/keys/keys.ts';
import type { CodeAccess } from '../control/keys/rights.ts';
import type { Sessions } from '../control/keys/sessions.ts';
import type { ReadActivity } from '../queue/activity/activity.ts';
import type { Queues } from '../queue/queues.ts';
import type { UseCounts } from '../wire/resources/limits.ts';
import type { NodeRecord } from '../wire/resources/nodes.ts';
import type { Compute } from './compute/compute.ts';
import type { DataStore } from './data-store.ts';
import { describeError, PlatformOptionError } from './option-error.ts';
import type { CompleteOptions } from './platform-options.ts';

/** Lower ports need a privilege. */
const FIRST_OPEN_PORT = 1_024;

interface ListenerParts extends Omit<CompleteOptions, 'compute'> {
  queue: Queues;
  keys: Keys;
  sessions: Sessions;
  /** Default: reads the endpoints that `queue` serves. */
  readActivity?: ReadActivity | undefined;
  /** Default: reads the endpoints that `queue` serves. */
  readFailed?: ReadFailed | undefined;
  /** What a user uses of the quotas. Default: counted here. */
  readUse?: ((userId: string) => Promise<UseCounts>) | undefined;
  listNodes: () => Promise<NodeRecord[]>;
  /** Nodes that serve the platform now. Default: one. */
  countNodes?: (() => number) | undefined;
  compute: Compute;
  clock: Clock;
  data: DataStore;
  codeAccess: CodeAccess;
  /** Called after the end of each response. Default: nothing is. */
  onAnswered?: ((request: ServedRequest) => void) | undefined;
  /** Read by `/readyz`. Default: ready once it listens. */
  isReady?: (() => boolean) | undefined;
  /** Default: this platform serves every endpoint. */
  forwarding?: ForwardingOptions | undefined;
  /** Counts calls of users and workers. Default: in this process. */
  createCounter?: CreateRateCounter | undefined;
}

export interface PlatformUrls {
  /** URL for clients on this machine. */
  readonly url: string;
  /** URL for workers on this machine, if there is a gRPC port. */
  readonly grpcUrl: string | undefined;
}

export interface Listening extends PlatformUrls {
  /** Tells load balancers and clients to leave; see `ApiServer`. */
  announceShutdown: () => void;
  /** Replaces the certificate of HTTPS and gRPC, and the authorities of gRPC clients if given. @throws the error of the TLS library */
  useCertificate: (tls: KeyPair & { clientCa?: string }) => void;
  /** Listens on one more address, with the same port. @throws the system's error */
  listenAlso: (host: string) => Promise<void>;
}

/** Closed by `stack`. @throws PlatformOptionError */
export async function listen(
  parts: ListenerParts,
  stack: AsyncDisposableStack,
): Promise<Listening> {
  const { clock, compute, data, host, keys, log, port, queue, tls } = parts;
  const { access, bounds, codeAccess, corsOrigins, listBytes, quotas } = parts;
  const rules = { access, bounds, codeAccess, corsOrigins, listBytes, quotas };
  const version = packageVersion();
  const rateGate = await openRateGate(parts.rateLimits, parts.createCounter);
  const workerAllowance = await openWorkerAllowance(parts.workerLimits, queue, parts.createCounter);
  const pem = tls && { tls: { cert: tls.cert, key: tls.key } };
  const { forwarding, isReady, onAnswered } = parts;
  const rest = {
    ...rules,
    forwarding,
    onAnswered,
    ...(isReady && { isReady }),
    log,
    clock,
    host,
    port,
    version,
    consoleFolder: parts.console === true ? CONSOLE_FOLDER : undefined,
    store: data.status,
    ...pem,
  };
  try {
    const { balancer, catalog, decisions, endpoints, pods, served: kept, versions } = compute;
    const { billing } = compute;
    const heldGpus = () => pods?.heldGpus() ?? new Set<string>();
    const resources = {
      catalog,
      engine: compute.engine ?? null,
      served: kept,
      heldGpus,
      decisions,
      versions,
      billing,
    };
    const { countNodes = () => 1, sessions } = parts;
    const about = () => ({ engine: compute.engineKind, nodes: countNodes() });
    const served = {
      readActivity: parts.readActivity,
      readFailed: parts.readFailed,
      readUse: parts.readUse,
      listNodes: parts.listNodes,
      queue,
      keys,
      sessions,
      about,
      endpoints,
      pods,
      balancer,
      resources,
      rateGate,
      workerAllowance,
    };
    const server = createServer({ ...served, ...rest });
    stack.defer(() => server.close());
    const { url } = await server.start();
    const streams = await listenForStreams(parts, server, stack);
    return {
      url,
      grpcUrl: streams?.url,
      announceShutdown() {
        server.announceShutdown();
        streams?.server.announceShutdown();
      },
      useCertificate(renewed) {
        server.useCertificate(renewed);
        streams?.server.useCertificate(renewed);
      },
      listenAlso: (host) => server.listenAlso(host),
    };
  } catch (error) {
    throw explainListenError(error, parts);
  }
}

async function listenForStreams(
  { bounds, clock, compute, forwarding, grpc, host, keys, log, queue, tls }: ListenerParts,
  { stop, workers }: Pick<ApiServer, 'stop' | 'workers'>,
  stack: AsyncDisposableStack,
): Promise<{ url: string; server: GrpcServer } | undefined> {
  if (!grpc) return undefined;
  const isClosing = () => queue.isClosing;
  const opened = await openGrpcPort(completeGrpcPort(grpc, { host, tls }), {
    ...workers,
    bounds,
    clock,
    endpoints: compute.endpoints,
    isClosing,
    keys,
    log,
    lookUp: forwarding && (() => forwarding.placement.lookUp()),
  });
  stack.defer(async () => {
    // Open waits are answered before their streams end.
    await stop();
    await opened.server.close();
  });
  return opened;
}

interface Ports extends Pick<ListenerParts, 'host' | 'port'> {
  /** Of the port for other nodes. */
  forwarding?: { listen: { host: string; port: number } } | undefined;
}

/** Returns the error itself if it is not the system's or the TLS library's. */
export function explainListenError(error: unknown, ports: Ports): unknown {
  if (!(error instanceof Error) || !('code' in error)) return error;
  const { code, message } = error;
  const nodes = ports.forwarding?.listen;
  const isOfNodes = nodes !== undefined && 'port' in error && error.port === nodes.port;
  const { host, port } = isOfNodes ? nodes : ports;
  const refuse = (option: string, problem: string) =>
    new PlatformOptionError('unusable', isOfNodes ? 'nodes.listen' : option, problem);
  if (code === 'EADDRINUSE')
    return refuse(
      'port',
      `${port} on ${host} is in use; stop the program that listens there, or choose another port`,
    );
  if (code === 'EACCES') {
    const advice =
      port < FIRST_OPEN_PORT
        ? `; choose one from ${FIRST_OPEN_PORT} on, or give this program the capability CAP_NET_BIND_SERVICE`
        : '';
    return refuse('port', `${port} on ${host} is not permitted${advice}`);
  }
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
    return refuse('host', `${host} is not an address of this machine`);
  }
  const isTls = typeof code === 'string' && code.startsWith('ERR_OSSL');
  return isTls ? refuse('tls', `cannot be used: ${message}`) : error;
}

export interface GrpcPort {
  port: number;
  host: string;
  keylessLimits: KeylessLimits;
  tls: GrpcServerOptions['tls'];
}

/** Default: same address as HTTP, on a free port. */
function completeGrpcPort(
  { host, keylessLimits, port, tls }: Partial<GrpcPort>,
  http: { host: string; tls?: { cert: string; key: string } | undefined },
): GrpcPort {
  const pem = http.tls && { cert: http.tls.cert, key: http.tls.key };
  return {
    host: host ?? http.host,
    port: port ?? 0,
    keylessLimits: keylessLimits ?? DEFAULT_KEYLESS_LIMITS,
    tls: tls ?? pem,
  };
}

type GrpcPortParts = Omit<GrpcServerOptions, 'host' | 'port' | 'tls' | 'keylessLimits'>;

/** @throws PlatformOptionError */
async function openGrpcPort(
  { host, keylessLimits, port, tls }: GrpcPort,
  parts: GrpcPortParts,
): Promise<{ url: string; server: GrpcServer }> {
  const { createGrpcServer } = await import('../api/grpc/server.ts');
  try {
    const server = createGrpcServer({ ...parts, host, port, keylessLimits, ...(tls && { tls }) });
    return { server, url: (await server.start()).url };
  } catch (error) {
    const said = describeError(error);
    // The library puts the system's error in brackets after a count of addresses.
    const [, reason = said] = /\[(.*)\]/.exec(said) ?? [];
    const problem = `${port} on ${host} cannot be used: ${reason}`;
    throw new PlatformOptionError('unusable', 'grpc.port', problem);
  }
}

async function openWorkerAllowance(
  limits: WorkerLimits | undefined,
  { workerLoads }: Pick<Queues, 'workerLoads'>,
  createCounter: CreateRateCounter | undefined,
): Promise<WorkerAllowance | undefined> {
  if (!limits) return undefined;
  const { WorkerAllowance } = await import('../api/worker/worker-allowance.ts');
  const isPresent = (endpointId: string, id: string) => workerLoads.isPresent(endpointId, id);
  return new WorkerAllowance({ limits, isPresent, createCounter });
}

async function openRateGate(
  limits: RateLimits | undefined,
  createCounter: CreateRateCounter | undefined,
): Promise<RateGate | undefined> {
  if (!limits) return undefined;
  const { RateGate } = await import('../api/limits/rate-limit.ts');
  return new RateGate(limits, createCounter);
}
