// The platform put together in this process: data folder, store, queue, keys, what runs pods, HTTP
// server. `serve` is this alone, `dev` this and workers.
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { HttpBounds } from '../../api/http/bounds.ts';
import type { RateLimits } from '../../api/http/rate-windows.ts';
import type { WorkerLimits } from '../../api/routes/worker-limits.ts';
import type { WorkerRoutesOptions } from '../../api/routes/worker-routes.ts';
import { runpodFormats } from '../../api/runpod/records.ts';
import { type ApiServerOptions, createServer } from '../../api/server.ts';
import { type Clock, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { createNameResolver } from '../../base/name-resolver.ts';
import { packageVersion } from '../../base/package-info.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { Keys } from '../../control/keys/keys.ts';
import { DEFAULT_OVERCOMMIT } from '../../control/limits/capacity.ts';
import type { CodeAccess } from '../../control/limits/code-access.ts';
import type { Quotas } from '../../control/limits/quotas.ts';
import type { Containment } from '../../engine/docker/containment.ts';
import type { PodUser } from '../../engine/process/pod-user.ts';
import { Queue } from '../../queue/queue.ts';
import type { QueueSettings } from '../../queue/settings.ts';
import { HttpWebhookSender } from '../../queue/webhooks/webhook-sender.ts';
import { explainFailure, nameStorageFailure } from '../../store/disk/sqlite-errors.ts';
import { StoreGuard, type StoreGuardOptions } from '../../store/disk/store-guard.ts';
import { SchemaTooNewError } from '../../store/migrations.ts';
import { LoneLogError } from '../../store/sqlite-connection.ts';
import { type Store, StoreUnavailableError } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { CommandError } from '../command.ts';
import { type CapacityChoice, measureLimits } from '../options/capacity-options.ts';
import { shareDataFolder } from '../options/pod-user.ts';
import { integer, UsageError } from '../options.ts';
import { findUsableDevices } from '../worker/device-plan.ts';
import { openCatalog } from './catalog-file.ts';
import { Compute } from './compute.ts';
import { lockDataFolder } from './data-lock.ts';
import { type EngineKind, openEngine } from './engine-options.ts';
import { GpuUsage } from './gpu-usage.ts';
import { type GrpcPort, openGrpcPort } from './grpc-port.ts';
import { openRateGate, openWorkerAllowance } from './rate-limits.ts';
import { locateWebhookSecrets, useWebhookSecrets } from './webhook-secrets.ts';
import { WorkerFolders } from './worker-folders.ts';

/** Of every command that runs a platform. */
export const portOption = integer({
  min: 0,
  max: 65_535,
  default: 8_000,
  placeholder: 'PORT',
  env: 'MILLRACE_PORT',
  help: 'TCP port; 0 picks a free one',
});

/** Of the endpoints that the command declares. */
export const maxAttemptsOption = integer({
  min: 1,
  max: 100,
  help: 'failures after which a job of a declared endpoint is FAILED; 1: no automatic retry; default: 3, or the value of an earlier start',
});

export interface PlatformOptions {
  dataFolder: string;
  host: string;
  /** 0 picks a free one. */
  port: number;
  access: ApiServerOptions['access'];
  tls?: { cert: string; key: string } | undefined;
  /** Default: workers come over HTTP alone. */
  grpc?: GrpcPort | undefined;
  /** Default: users may call as often as they like. */
  rateLimits?: RateLimits | undefined;
  /** Default: workers may call as often, and under as many ids, as they like. */
  workerLimits?: WorkerLimits | undefined;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
  /** Whether callers' code can reach the platform's keys. Default: it cannot. */
  codeAccess?: CodeAccess | undefined;
  /** Bytes of JSON in one page of a list, at most. Default 4 MB. */
  listBytes?: number | undefined;
  /** What callers of the HTTP API may use. Default: as bounds.ts has it. */
  bounds?: Partial<HttpBounds> | undefined;
  /** What runs pods. Default: nothing does. */
  compute?: ComputeChoice | undefined;
  log: Log;
  settings?: Partial<QueueSettings>;
  webhooks: {
    /** Whether they may go to addresses that are not public. */
    addresses: 'public' | 'any';
    /** Default: in the data folder. */
    secretFile?: string | undefined;
    /** Name servers for receivers, `address` or `address:port`. Default: those of the machine. */
    nameServers?: readonly string[] | undefined;
  };
  /** How the store's file is looked after. Default: without a reserve for a full disk. */
  storage?: StorageOptions;
  /** Declared at the start, with the settings they have or the default ones. */
  endpointIds: readonly string[];
  /** Of endpoints that are declared. Default: what they have, or 3. */
  maxAttempts?: number | undefined;
}

type StorageOptions = Pick<StoreGuardOptions, 'reserveBytes' | 'eraseAfterMs' | 'checkMs'>;

const DEFAULT_STORAGE: StorageOptions = { reserveBytes: 0, eraseAfterMs: 30_000, checkMs: 60_000 };

export interface ComputeChoice {
  engine: EngineKind;
  dockerHost: string | undefined;
  /** The operator's catalogue. Default: what the machine has. */
  catalogPath: string | undefined;
  /** What all pods together may ask for. */
  capacity: CapacityChoice;
  /** Of the process engine. */
  processUsers: 'owner' | 'all';
  /** The user that the process engine runs pods as. Default: the platform's. */
  podUser?: PodUser | undefined;
  /** Of containers on Docker. */
  containment?: Containment | undefined;
  /** As workers that the platform starts reach it. Default: its own URL. */
  workerUrl: string | undefined;
}

const NO_ENGINE: ComputeChoice = {
  engine: 'none',
  dockerHost: undefined,
  catalogPath: undefined,
  processUsers: 'owner',
  capacity: { overcommit: DEFAULT_OVERCOMMIT, machine: {} },
  workerUrl: undefined,
};

export interface Platform {
  /** As a client on this machine calls it. */
  readonly url: string;
  /** As a worker on this machine calls it, if there is a gRPC port. */
  readonly grpcUrl: string | undefined;
  readonly queue: Queue;
  readonly keys: Keys;
  readonly endpoints: Endpoints;
  /** @throws UsageError */
  declareEndpoint(id: string): Promise<void>;
  /** Answers every open wait, then closes the store and gives the folder back. */
  close(): Promise<void>;
}

/** @throws CommandError, UsageError */
export async function openPlatform(options: PlatformOptions): Promise<Platform> {
  const closers: (() => unknown)[] = [];
  const closeAll = async () => {
    for (const close of closers.splice(0).reverse()) await close();
  };
  try {
    const lock = lockDataFolder(options.dataFolder);
    closers.push(() => lock.release());
    const clock = systemClock;
    const guard = await openStore(options, clock);
    closers.push(() => guard.close());
    const { store } = guard;
    const keys = await Keys.open({ store, clock });
    const compute = await openCompute({ ...options, store, clock }, closers);
    const { endpoints } = compute;
    const { log, settings } = options;
    const webhooks = createWebhookSender(options);
    const queue = new Queue({
      store,
      clock,
      log,
      webhooks,
      formats: runpodFormats,
      ...(settings && { settings }),
    });
    closers.push(() => queue.close());
    await queue.start();
    await compute.startDeletion(queue, options.endpointIds);
    const declare = (id: string) => declareEndpoint(endpoints, id, options.maxAttempts);
    for (const id of options.endpointIds) await declare(id);
    const urls = await listen({ ...options, queue, keys, compute, clock, guard }, closers);
    closers.push(() => compute.stop());
    await compute.start({ queue, keys, url: options.compute?.workerUrl ?? urls.url });
    return { ...urls, queue, keys, endpoints, declareEndpoint: declare, close: closeAll };
  } catch (error) {
    await closeAll();
    throw explainStoreError(error, options);
  }
}

/** What the store could not do while the platform started. */
function explainStoreError(error: unknown, { dataFolder }: PlatformOptions): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  const reason = explainFailure(error.code ?? '');
  return new CommandError(`--data: ${dataFolder} cannot be used: ${reason}`);
}

function createWebhookSender({ dataFolder, webhooks }: PlatformOptions): HttpWebhookSender {
  const { addresses, nameServers, secretFile } = webhooks;
  const secrets = useWebhookSecrets(locateWebhookSecrets(dataFolder, secretFile));
  const resolve = createNameResolver({ servers: nameServers });
  return new HttpWebhookSender({ secrets, addresses, resolve, version: packageVersion() });
}

interface Parts extends Omit<PlatformOptions, 'compute'> {
  queue: Queue;
  keys: Keys;
  compute: Compute;
  clock: Clock;
  guard: StoreGuard;
}

async function openCompute(
  options: PlatformOptions & { store: Store; clock: Clock },
  closers: (() => unknown)[],
): Promise<Compute> {
  const { clock, dataFolder, log, quotas, store } = options;
  const choice = options.compute ?? NO_ENGINE;
  const { capacity, catalogPath, dockerHost, engine: kind, processUsers } = choice;
  const limits = measureLimits(capacity, { engine: kind, dataFolder });
  const devices = kind === 'none' ? [] : await findUsableDevices(log);
  const catalog = openCatalog({ path: catalogPath, devices, log });
  const usage = new GpuUsage('nvidia-smi');
  const measureGpus = (uuids: readonly string[]) => usage.measure(uuids);
  const { containment, podUser } = choice;
  if (podUser) await shareDataFolder(dataFolder, podUser);
  const engineParts = { kind, dockerHost, dataFolder, devices, measureGpus, log };
  const engine = await openEngine({ ...engineParts, podUser, containment });
  const workerFolders =
    kind === 'process'
      ? new WorkerFolders({ path: join(dataFolder, 'workers'), user: podUser, log })
      : undefined;
  const parts = { store, clock, log, catalog, engine, processUsers, workerFolders, quotas, limits };
  const compute = await Compute.open(parts);
  closers.push(() => compute.close());
  return compute;
}

async function listen(
  parts: Parts,
  closers: (() => unknown)[],
): Promise<Pick<Platform, 'url' | 'grpcUrl'>> {
  const { clock, compute, guard, host, keys, log, port, queue, tls } = parts;
  const { access, bounds, codeAccess, listBytes, quotas } = parts;
  const rules = { access, bounds, codeAccess, listBytes, quotas };
  const version = packageVersion();
  const rateGate = await openRateGate(parts.rateLimits);
  const workerAllowance = await openWorkerAllowance(parts.workerLimits, queue);
  const rest = { ...rules, log, clock, host, port, version, store: guard, ...(tls && { tls }) };
  try {
    const { balancer, catalog, decisions, endpoints, pods, templates } = compute;
    const heldGpus = () => pods?.heldGpus() ?? new Set<string>();
    const resources = { catalog, templates, heldGpus, decisions };
    const served = { queue, keys, endpoints, pods, balancer, resources, rateGate, workerAllowance };
    const server = createServer({ ...served, ...rest });
    closers.push(() => server.close());
    const { url } = await server.start();
    return { url, grpcUrl: await listenForStreams(parts, server.workers, closers) };
  } catch (error) {
    throw explainListenError(error, parts);
  }
}

async function listenForStreams(
  { bounds, clock, compute, grpc, keys, log, queue }: Parts,
  workers: WorkerRoutesOptions,
  closers: (() => unknown)[],
): Promise<string | undefined> {
  if (!grpc) return undefined;
  const isClosing = () => queue.isClosing;
  const { server, url } = await openGrpcPort(grpc, {
    ...workers,
    ...{ bounds, clock, endpoints: compute.endpoints, isClosing, keys, log },
  });
  closers.push(async () => {
    // What waits is answered then, before its stream ends.
    await queue.close();
    await server.close();
  });
  return url;
}

function explainListenError(error: unknown, { host, port }: Parts): unknown {
  if (!(error instanceof Error) || !('code' in error)) return error;
  const { code, message } = error;
  if (code === 'EADDRINUSE') return new CommandError(`--port: ${port} on ${host} is in use`);
  if (code === 'EACCES') return new CommandError(`--port: ${port} on ${host} is not permitted`);
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
    return new CommandError(`--host: ${host} is not an address of this machine`);
  }
  const isTls = typeof code === 'string' && code.startsWith('ERR_OSSL');
  return isTls ? new CommandError(`--tls-cert, --tls-key: cannot be used: ${message}`) : error;
}

async function openStore(options: PlatformOptions, clock: Clock): Promise<StoreGuard> {
  const { dataFolder: folder, log, storage } = options;
  const path = join(folder, 'millrace.db');
  try {
    // Environments and payloads are in it. SQLite would let everybody read what it makes, and gives
    // the files beside it the mode of this one.
    closeSync(openSync(path, 'a', 0o600));
    return await StoreGuard.open({ ...DEFAULT_STORAGE, ...storage, path, clock, log });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const isPlain = error instanceof SchemaTooNewError || error instanceof LoneLogError;
    if (isPlain) throw new CommandError(reason);
    const code = nameStorageFailure(error);
    const advice = code === undefined ? '' : `; ${explainFailure(code)}`;
    throw new CommandError(`--data: ${folder} cannot be used: ${reason}${advice}`);
  }
}

async function declareEndpoint(
  endpoints: Endpoints,
  id: string,
  maxAttempts: number | undefined,
): Promise<void> {
  const known = endpoints.find(id)?.settings;
  try {
    await endpoints.ensureEndpoint(
      id,
      maxAttempts === undefined ? undefined : { ...known, maxAttempts },
    );
  } catch (error) {
    if (error instanceof ProblemError) throw new UsageError(error.message);
    throw error;
  }
}
