// Opens the ports of a platform: HTTP for everybody, gRPC for workers. Code for gRPC, and for the limits of calls, is loaded
// only if options ask for it.
import type { GrpcServer, GrpcServerOptions } from '../api/grpc/server.ts';
import { DEFAULT_KEYLESS_LIMITS } from '../api/limits/bounds.ts';
import type { CreateRateCounter, RateGate, RateLimits } from '../api/limits/rate-limit.ts';
import type { KeyPair } from '../api/listener.ts';
import { CONSOLE_FOLDER } from '../api/routes/console-routes.ts';
import { type ApiServer, createServer } from '../api/server.ts';
import type { ApiServerOptions } from '../api/server-options.ts';
import type { WorkerAllowance, WorkerLimits } from '../api/worker/worker-allowance.ts';
import { packageVersion } from '../base/package-info.ts';
import type { Queues } from '../queue/queues.ts';
import type { Compute } from './compute/compute.ts';
import { describeError, PlatformOptionError } from './option-error.ts';
import type { CompleteOptions, GrpcPort } from './platform-options.ts';

/** Lower ports need a privilege. */
const FIRST_OPEN_PORT = 1_024;

interface ListenerParts {
  options: CompleteOptions;
  compute: Compute;
  /** All other services that the API needs, and what it observes. */
  services: Omit<ApiServerOptions, keyof FromOptions | keyof FromCompute | MadeHere>;
  /** Nodes that serve the platform now. Default: one. */
  countNodes?: (() => number) | undefined;
  /** Counts calls of users and workers. Default: in this process. */
  createCounter?: CreateRateCounter | undefined;
}

type FromOptions = ReturnType<typeof readOptions>;
type FromCompute = ReturnType<typeof readCompute>;
type MadeHere = 'about' | 'rateGate' | 'tls' | 'version' | 'workerAllowance';

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
  const { compute, countNodes = () => 1, createCounter, options, services } = parts;
  const { tls } = options;
  const rateGate = await openRateGate(options.rateLimits, createCounter);
  const { workerLimits } = options;
  const workerAllowance = await openWorkerAllowance(workerLimits, services.queue, createCounter);
  try {
    const server = createServer({
      ...services,
      ...readOptions(options),
      ...readCompute(compute),
      ...(tls && { tls: { cert: tls.cert, key: tls.key } }),
      version: packageVersion(),
      about: () => ({ engine: compute.engineKind, nodes: countNodes() }),
      rateGate,
      workerAllowance,
    });
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
    throw explainListenError(error, { ...options, forwarding: services.forwarding });
  }
}

function readOptions(options: CompleteOptions) {
  const { access, bounds, corsOrigins, host, listBytes, log, port, quotas } = options;
  const consoleFolder = options.console === true ? CONSOLE_FOLDER : undefined;
  return { access, bounds, consoleFolder, corsOrigins, host, listBytes, log, port, quotas };
}

function readCompute(compute: Compute) {
  const { balancer, billing, catalog, decisions, endpoints, pods, served, versions } = compute;
  const heldGpus = () => pods?.heldGpus() ?? new Set<string>();
  const engine = compute.engine ?? null;
  const { networkVolumes, registries, templates } = compute;
  const records = { networkVolumes, registries, templates };
  const resources = { catalog, engine, served, records, heldGpus, decisions, versions, billing };
  return { endpoints, pods, balancer, resources };
}

async function listenForStreams(
  { compute, options, services }: ListenerParts,
  { stop, workers }: Pick<ApiServer, 'stop' | 'workers'>,
  stack: AsyncDisposableStack,
): Promise<{ url: string; server: GrpcServer } | undefined> {
  const { bounds, grpc, host, log, tls } = options;
  const { clock, forwarding, keys, queue } = services;
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

interface Ports extends Pick<CompleteOptions, 'host' | 'port'> {
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
