// Assembles the platform in this process: data folder, store, queue, keys, engine, HTTP server. No other code does. The store is
// a Postgres server, a guarded file in the data folder, or memory.

import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { SOUND_STORE, type StoreStatus } from '../api/metrics/store-status.ts';
import { type Clock, type ResumableClock, systemClock } from '../base/clock.ts';
import { Keys } from '../control/keys/keys.ts';
import { Sessions } from '../control/keys/sessions.ts';
import type { PodUser } from '../engine/process/pod-user.ts';
import type { TracingOptions } from '../queue/job-tracing.ts';
import { UnfinishedCopyError } from '../store/copy/copy-state.ts';
import { explainFailure, nameStorageFailure } from '../store/disk/store-failures.ts';
import { StoreGuard } from '../store/disk/store-guard.ts';
import { SchemaTooNewError } from '../store/schema-migration.ts';
import { openSqliteStore } from '../store/sqlite/sqlite.ts';
import { LoneLogError } from '../store/sqlite/sqlite-connection.ts';
import { type Store, StoreUnavailableError } from '../store/store.ts';
import { Compute } from './compute/compute.ts';
import { checkWorkerUrl, openWorkerAccess } from './compute/worker-access.ts';
import { createNoticeSender, createQueue, createWebhookSender } from './create-queue.ts';
import { openCatalog } from './files/catalog-file.ts';
import { checkDataFolder, lockDataFolder } from './files/data-folder.ts';
import { listSecretFiles, openSealer, prepareKeys, warnOfOpenFiles } from './files/secret-files.ts';
import { listen } from './listeners.ts';
import { choosePodUser, openMachine, shareDataFolder } from './machine.ts';
import { createSelfReader, listOnlyNode } from './node-list.ts';
import { describeError, PlatformOptionError } from './option-error.ts';
import {
  type CompleteOptions,
  checkCorsOrigins,
  checkNodeOptions,
  completeOptions,
  type PlatformOptions,
} from './platform-options.ts';
import { declare, type PlatformSeams, type RunningPlatform } from './running-platform.ts';
import { createLimitSources } from './shared-limit-source.ts';
import { openTraces } from './trace-exporter.ts';

/** @throws PlatformOptionError */
export async function openPlatform(
  given: PlatformOptions = {},
  seams: PlatformSeams = {},
): Promise<RunningPlatform> {
  const options = completeOptions(given);
  // What is opened is closed in the reverse order, also after a failed start.
  const stack = new AsyncDisposableStack();
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= stack.disposeAsync().catch(raiseFirst);
    return closing;
  };
  try {
    return { ...(await open(options, seams, stack)), close };
  } catch (error) {
    // The first failure says more than failures of the shutdown after it.
    await close().catch((cause: unknown) =>
      options.log.error({ err: cause }, 'platform shutdown failed'),
    );
    throw explainStoreError(error, options);
  }
}

/** The first failure of several says most. */
function raiseFirst(error: unknown): never {
  let first = error;
  while (first instanceof SuppressedError) first = first.suppressed;
  throw first;
}

async function open(
  options: CompleteOptions,
  seams: PlatformSeams,
  stack: AsyncDisposableStack,
): Promise<Omit<RunningPlatform, 'close'>> {
  checkCorsOrigins(options);
  checkWorkerUrl(options);
  const ofNode = checkNodeOptions(options);
  const tracing = openTraces({ ...options, url: ofNode?.nodes.url });
  if (tracing) stack.defer(() => tracing.close());
  const podUser = await takeDataFolder(options, stack);
  const given = { ...seams, podUser, tracing };
  if (!ofNode) return openAlone(options, given, stack);
  // Only here, because the driver takes time to load.
  const { openNode } = await import('./nodes/node-platform.ts');
  return openNode(ofNode, given, stack);
}

/** Returns the user of pods. @throws PlatformOptionError */
async function takeDataFolder(
  options: CompleteOptions,
  stack: AsyncDisposableStack,
): Promise<PodUser | undefined> {
  const { dataFolder, log } = options;
  if (dataFolder !== undefined) checkDataFolder(dataFolder);
  warnOfOpenFiles(listSecretFiles(options), log);
  // Before the lock, which creates missing folders for the platform's user only.
  const podUser = await findPodUser(options);
  if (dataFolder === undefined) return podUser;
  const lock = lockDataFolder(dataFolder);
  stack.defer(() => lock.release());
  if (podUser) await shareDataFolder(dataFolder, podUser);
  return podUser;
}

interface GivenParts extends PlatformSeams {
  podUser: PodUser | undefined;
  tracing: TracingOptions | undefined;
}

/** A platform that has its database for itself. @throws PlatformOptionError */
async function openAlone(
  options: CompleteOptions,
  given: GivenParts,
  stack: AsyncDisposableStack,
): Promise<Omit<RunningPlatform, 'close'>> {
  const clock = systemClock;
  const data = await openDataStore(options, clock);
  stack.defer(() => data.close());
  const ofStore = { store: data.store, clock };
  const keys = await Keys.open(ofStore);
  const sessions = await Sessions.open({ ...ofStore, keys, times: options.sessions });
  const compute = await openCompute({ ...options, ...ofStore, podUser: given.podUser });
  stack.defer(() => compute.close());
  const { endpoints } = compute;
  const findScaling = given.findScaling ?? ((id) => compute.scalingOf(id));
  const sharedLimits = createLimitSources(compute)();
  const queue = createQueue({ ...options, ...given, ...ofStore, findScaling, sharedLimits });
  stack.defer(() => queue.close());
  await queue.start();
  const declareEndpoint = (id: string) => declare(endpoints, id, options.maxAttempts);
  const deletion = await compute.remains.startDeletion(queue.removal);
  stack.defer(() => deletion.close());
  for (const id of options.endpoints) await deletion.settled(id);
  for (const id of options.endpoints) await declareEndpoint(id);
  const firstKeys = await prepareKeys(keys, options);
  const { devices = [], engine, trustKeys = false } = options.compute;
  const codeAccess = { engine, trustKeys, podUser: given.podUser?.name };
  const readSelf = createSelfReader(data.status, clock.now());
  const listNodes = () => listOnlyNode({ compute, devices, readSelf });
  const { isReady, onAnswered } = given;
  const store = data.status;
  const observed = { isReady, onAnswered };
  const services = { ...observed, queue, keys, sessions, clock, store, codeAccess, listNodes };
  const { listenAlso, ...urls } = await listen({ options, compute, services }, stack);
  stack.defer(() => compute.stop());
  const access = { options, url: urls.url, listenAlso, clock };
  const workers = await openWorkerAccess({ ...access, engine: compute.engine });
  stack.defer(() => workers.close());
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
  const hasHistory = options.history !== undefined;
  const parts = { store, clock, log, catalog, hasHistory, processUsers, quotas, sealer } as const;
  const noticeSender = engine && createNoticeSender(createWebhookSender(options), clock);
  const open = engine && (() => engine);
  return Compute.open({ ...parts, engine: open, workerFolders, limits, noticeSender });
}

interface DataStore {
  store: Store;
  status: StoreStatus;
  close(): Promise<void>;
}

/** @throws PlatformOptionError */
async function openDataStore(options: CompleteOptions, clock: Clock): Promise<DataStore> {
  const { dataFolder: folder, log, onStoreLost: onLost, storage } = options;
  if (options.store !== undefined) {
    // Only here, because the driver takes time to load.
    const { openPostgresData } = await import('./postgres-store.ts');
    const { store: url, storeLimits: limits = {}, storePassword: password } = options;
    const { status, store } = await openPostgresData({ url, password, limits, log, onLost });
    return { store, status, close: () => store.close() };
  }
  if (folder === undefined) {
    const store = openSqliteStore({ path: ':memory:' });
    return { store, status: SOUND_STORE, close: () => store.close() };
  }
  const path = join(folder, 'millrace.db');
  try {
    // The database holds secrets and payloads. SQLite would make it readable for everybody; its
    // other files get the mode of this one.
    closeSync(openSync(path, 'a', 0o600));
    const guard = await StoreGuard.open({ ...storage, path, clock, log, onLost });
    return { store: guard.store, status: guard, close: () => guard.close() };
  } catch (error) {
    throw refuse(explainOpening(error, folder));
  }
}

/** Explains a failure of the store during the platform's start. */
function explainStoreError(
  error: unknown,
  { dataFolder: folder, store }: Pick<CompleteOptions, 'dataFolder' | 'store'>,
): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  if (store !== undefined) return new PlatformOptionError('unusable', 'store', error.message);
  return refuse(`${folder} cannot be used: ${explainFailure(error.code ?? '')}`);
}

function explainOpening(error: unknown, folder: string): string {
  const reason = describeError(error);
  const isExplained =
    error instanceof SchemaTooNewError ||
    error instanceof LoneLogError ||
    error instanceof UnfinishedCopyError;
  if (isExplained) return reason;
  const code = nameStorageFailure(error);
  const advice = code === undefined ? '' : `; ${explainFailure(code)}`;
  return `${folder} cannot be used: ${reason}${advice}`;
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('unusable', 'dataFolder', problem);
}
