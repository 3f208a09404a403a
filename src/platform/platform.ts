// Assembles the platform in this process: data folder, store, queue, keys, engine, HTTP server. No other code does.
import type { ServedRequest } from '../api/http/guard.ts';
import { type ResumableClock, systemClock } from '../base/clock.ts';
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import { Keys } from '../control/keys/keys.ts';
import { Sessions } from '../control/keys/sessions.ts';
import type { PodUser } from '../engine/process/pod-user.ts';
import type { Queues } from '../queue/queues.ts';
import type { FindScaling } from '../queue/waits/waits.ts';
import type { Store } from '../store/store.ts';
import type { WorkerLink } from '../wire/link/worker-link.ts';
import { Compute } from './compute/compute.ts';
import { choosePodUser, shareDataFolder } from './compute/pod-user-choice.ts';
import { checkWorkerUrl, openWorkerAccess } from './compute/worker-access.ts';
import { createNoticeSender, createQueue, createWebhookSender } from './create-queue.ts';
import { explainStoreError, openDataStore } from './data-store.ts';
import { declare } from './declare-endpoint.ts';
import { openCatalog } from './files/catalog-file.ts';
import { checkDataFolder, lockDataFolder } from './files/data-lock.ts';
import { type PlatformKeys, prepareKeys } from './files/key-file.ts';
import { listSecretFiles, openSealer, warnOfOpenFiles } from './files/secret-files.ts';
import { listen, type PlatformUrls } from './listeners.ts';
import { openMachine } from './machine.ts';
import { createSelfReader, listOnlyNode } from './node-list.ts';
import { checkNodeOptions } from './nodes/node-options.ts';
import { PlatformOptionError } from './option-error.ts';
import {
  type CompleteOptions,
  checkCorsOrigins,
  completeOptions,
  type PlatformOptions,
} from './platform-options.ts';
import { openTraces } from './trace-exporter.ts';

export interface RunningPlatform extends PlatformUrls {
  /** Undefined on a later start without a key file. */
  readonly firstKeys: PlatformKeys | undefined;
  readonly queue: Queues;
  readonly keys: Keys;
  readonly endpoints: Endpoints;
  /** @throws PlatformOptionError */
  declareEndpoint(id: string): Promise<void>;
  /**
   * Answers `/readyz` with 503, and closes each connection after its response, so that load balancers and clients
   * leave. Requests are served as before. `close` follows.
   */
  announceShutdown(): void;
  /**
   * Replaces the certificate of HTTPS and gRPC, and the authorities of gRPC clients if given; open connections keep
   * theirs. @throws the error of the TLS library
   */
  useCertificate(tls: { cert: string; key: string; clientCa?: string }): void;
  /** Answers every open wait, then closes the store and unlocks the folder. */
  close(): Promise<void>;
}

/** Replacements and observers of parts of the platform, for `millrace dev`, checks and tests. */
export interface PlatformSeams {
  /** Called after the end of each response. */
  onAnswered?: (request: ServedRequest) => void;
  /** Wraps the link between the carriers and the queue of an endpoint. */
  wrapLink?: (link: WorkerLink, endpointId: string) => WorkerLink;
  /** What is known of the workers of an endpoint that the platform does not start. */
  findScaling?: FindScaling;
  /** Read by `/readyz`. Default: ready once it listens. */
  isReady?: () => boolean;
}

type Closers = (() => unknown)[];

/** @throws PlatformOptionError */
export async function openPlatform(
  given: PlatformOptions = {},
  seams: PlatformSeams = {},
): Promise<RunningPlatform> {
  const options = completeOptions(given);
  const closers: Closers = [];
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= closeAll(closers);
    return closing;
  };
  try {
    return { ...(await open(options, seams, closers)), close };
  } catch (error) {
    // The first failure says more than failures of the shutdown after it.
    await close().catch((cause: unknown) =>
      options.log.error({ err: cause }, 'platform shutdown failed'),
    );
    throw explainStoreError(error, options);
  }
}

/** Closes in reverse order; if one fails, the others still close. @throws the first error */
async function closeAll(closers: Closers): Promise<void> {
  const errors: unknown[] = [];
  for (const close of closers.reverse()) {
    try {
      await close();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
}

async function open(
  options: CompleteOptions,
  seams: PlatformSeams,
  closers: Closers,
): Promise<Omit<RunningPlatform, 'close'>> {
  const { dataFolder, endpoints: names } = options;
  const clock = systemClock;
  checkCorsOrigins(options);
  checkWorkerUrl(options);
  const ofNode = checkNodeOptions(options);
  const tracing = openTraces({ ...options, url: ofNode?.nodes.url });
  if (tracing) closers.push(() => tracing.close());
  if (dataFolder !== undefined) checkDataFolder(dataFolder);
  warnOfOpenFiles(listSecretFiles(options), options.log);
  // Before the lock, which creates missing folders for the platform's user only.
  const podUser = await findPodUser(options);
  if (dataFolder !== undefined) {
    const lock = lockDataFolder(dataFolder);
    closers.push(() => lock.release());
    if (podUser) await shareDataFolder(dataFolder, podUser);
  }
  if (ofNode) {
    // Only here, because the driver takes time to load.
    const { openNode } = await import('./nodes/node-platform.ts');
    return openNode(ofNode, { ...seams, podUser, tracing }, closers);
  }
  const data = await openDataStore(options, clock);
  closers.push(() => data.close());
  const { store } = data;
  const keys = await Keys.open({ store, clock });
  const sessions = await Sessions.open({ store, clock, keys, times: options.sessions });
  const compute = await openCompute({ ...options, store, clock, podUser });
  closers.push(() => compute.close());
  const { endpoints } = compute;
  const queue = createQueue({
    ...options,
    store,
    clock,
    tracing,
    ...seams,
    findScaling: seams.findScaling ?? ((id) => compute.scalingOf(id)),
  });
  closers.push(() => queue.close());
  await queue.start();
  closers.push(await compute.remains.startDeletion(queue.removal, names));
  const declareEndpoint = (id: string) => declare(endpoints, id, options.maxAttempts);
  for (const id of names) await declareEndpoint(id);
  const firstKeys = await prepareKeys(keys, options);
  const { engine, trustKeys = false } = options.compute;
  const codeAccess = { engine, trustKeys, podUser: podUser?.name };
  const { devices = [] } = options.compute;
  const readSelf = createSelfReader(data.status, clock.now());
  const listNodes = () => listOnlyNode({ compute, devices, readSelf });
  const parts = { queue, keys, sessions, compute, clock, data, codeAccess, listNodes };
  const { listenAlso, ...urls } = await listen({ ...options, ...seams, ...parts }, closers);
  closers.push(() => compute.stop());
  const access = { options, url: urls.url, listenAlso, clock };
  const workers = await openWorkerAccess({ ...access, engine: compute.engine });
  closers.push(() => workers.close());
  await compute.start({ queue, keys, url: workers.url });
  return { ...urls, firstKeys, queue, keys, endpoints, declareEndpoint };
}

interface StoreParts extends Omit<CompleteOptions, 'store'> {
  store: Store;
  clock: ResumableClock;
}

async function findPodUser(options: CompleteOptions): Promise<PodUser | undefined> {
  const { compute, dataFolder, log } = options;
  const { engine, podUser: given } = compute;
  if (engine === 'none') return undefined;
  if (dataFolder === undefined) {
    const problem = `is needed with the engine ${engine}`;
    throw new PlatformOptionError('invalid', 'dataFolder', problem);
  }
  const secretFiles = listSecretFiles(options);
  return choosePodUser({ given, engine, dataFolder, secretFiles, log });
}

async function openCompute(
  options: StoreParts & { podUser: PodUser | undefined },
): Promise<Compute> {
  const { clock, log, podUser, quotas, store, ...rest } = options;
  const { catalogFile, devices = [], readVariable = () => undefined } = options.compute;
  const { engine: kind } = options.compute;
  const catalog = openCatalog({ path: catalogFile, devices, engine: kind, readVariable, log });
  const processUsers = options.compute.trustUsers ? 'all' : 'owner';
  const { engine, limits, workerFolders } = await openMachine({ ...rest, log }, podUser);
  const sealer = openSealer(options.secretsKeyFile);
  const parts = { store, clock, log, catalog, processUsers, quotas, sealer } as const;
  const noticeSender = engine && createNoticeSender(createWebhookSender(options), clock);
  const open = engine && (() => engine);
  return Compute.open({ ...parts, engine: open, workerFolders, limits, noticeSender });
}
