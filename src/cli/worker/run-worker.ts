// Runs one worker process for one handler and one endpoint, alone or under a supervisor to which it reports: opens the
// folder of its outbox, and delivers the outcomes that dead workers left beside it. It is started often, so it imports only
// what it runs.
import { flushCompileCache } from 'node:module';
import { hostname } from 'node:os';
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { packageVersion } from '../../base/package-info.ts';
import { createRandomId } from '../../base/random-id.ts';
import { type Device, LinkError } from '../../wire/link/worker-link.ts';
import type { BreakerState } from '../../worker/circuit-breaker.ts';
import { HandlerNotLoadedError } from '../../worker/execution/executor.ts';
import { ThreadExecutor } from '../../worker/execution/thread-executor.ts';
import type { HealthServer } from '../../worker/health/health-server.ts';
import type { WorkerMetrics } from '../../worker/health/worker-metrics.ts';
import {
  createTag,
  endLeftProcesses,
  nameTempFolder,
  removeAbandonedFolders,
  TAG_VARIABLE,
} from '../../worker/leftovers.ts';
import type { AbandonedFolders } from '../../worker/outbox/abandoned-folders.ts';
import { MemoryOutbox } from '../../worker/outbox/outbox.ts';
import type { WorkerFolder } from '../../worker/outbox/state-folder.ts';
import type { BeforeStart } from '../../worker/starts.ts';
import {
  NO_PARENT,
  observeForParent,
  openParentChannel,
  type ParentChannel,
  SupervisedWorker,
} from '../../worker/supervisor/parent-channel.ts';
import { createWorker, type Worker, type WorkerState } from '../../worker/worker.ts';
import { CommandError, EXIT } from '../command.ts';
import { readVariable, setVariable } from '../config.ts';
import { UsageError } from '../options.ts';
import { forceOnSecond, listenForStop, type StopSignals } from '../stop-signals.ts';
import { createTerminalLog, showLogLines } from '../terminal-log.ts';
import { measureBefore, readBefore } from './before-start.ts';
import { openHealthPort } from './health-port.ts';
import { openLink } from './platform-link.ts';
import {
  BREAKER_VARIABLE,
  DEVICE_SET_VARIABLE,
  SPARE_VARIABLE,
  type WorkerFlags,
} from './worker-flags.ts';

/**
 * Time after --grace-ms in which a thread must have ended, ms. Termination takes up to a second;
 * the rest is for a busy machine.
 */
const STUCK_AFTER_GRACE_MS = 5_000;

/**
 * Resolves with the exit code. `installMs`: how long this process has installed its handler. @throws UsageError, CommandError,
 * unless a parent process gets the error
 */
export async function runWorkerProcess(
  handlerPath: string,
  values: WorkerFlags,
  installMs: number,
): Promise<number> {
  const hasParent = readVariable(DEVICE_SET_VARIABLE) !== undefined;
  const channel = hasParent ? openParentChannel() : NO_PARENT;
  const isSupervised = hasParent && !values.underDev;
  const tag = hasParent ? readVariable(TAG_VARIABLE) : createTag();
  if (tag !== undefined) setVariable(TAG_VARIABLE, tag);
  let isStuck = false;
  const onStuck = () => {
    isStuck = true;
  };
  try {
    const tempFolder = nameTempFolder(tag ?? createTag());
    const before = hasParent ? readBefore() : measureBefore(installMs);
    return await run({ handlerPath, values, channel, isSupervised, onStuck, tempFolder, before });
  } catch (error) {
    if (!(error instanceof CommandError || error instanceof UsageError)) throw error;
    const isFinal = !(error instanceof SetupError);
    const exitCode = error instanceof CommandError ? error.exitCode : EXIT.usage;
    channel.send({ type: 'failed', reason: error.message, isFinal, exitCode });
    // The parent reports the reason; `dev` shows this process's log, which has it.
    if (isSupervised || (values.underDev && error instanceof LifeError)) return exitCode;
    throw error;
  } finally {
    await channel.close();
    // The supervisor does the same, if it runs.
    if (tag !== undefined) endLeftProcesses(tag);
    // A thread that is stuck in native code prevents every other exit.
    if (isStuck) {
      process.kill(process.pid, 'SIGKILL');
      // Reached only by process 1 of a container, which its own signals do not end.
      process.abort();
    }
  }
}

interface WorkerRunOptions {
  handlerPath: string;
  values: WorkerFlags;
  channel: ParentChannel;
  isSupervised: boolean;
  /** Called if the worker has stopped and one of its threads has not. */
  onStuck: () => void;
  /** For files of attempts. */
  tempFolder: string;
  before: BeforeStart | undefined;
}

async function run(terms: WorkerRunOptions): Promise<number> {
  const { before, channel, handlerPath, isSupervised, onStuck, tempFolder, values } = terms;
  const log = createTerminalLog(values.logLevel);
  const link = await openLink(values, log);
  const found = readDevices() ?? (await detectDevices(values, log));
  const devices = found.map((device) => addType(device, values.gpuType));
  const executor = new ThreadExecutor({
    handlerPath,
    endpointId: values.endpoint,
    threads: values.threads,
    graceMs: values.graceMs,
    devices,
    tempFolder,
    ...(values.jobsPerThread !== undefined && { concurrency: values.jobsPerThread }),
    ...(values.heapLimit !== undefined && {
      resourceLimits: { maxOldGenerationSizeMb: values.heapLimit },
    }),
    logDestination: { write: showLogLines },
  });
  void removeAbandonedFolders();
  const { drainMs, forceMs, memoryLimit } = values;
  const version = packageVersion();
  const folder = await openFolder(values, log);
  const { workerId, incarnation, outbox } = folder;
  const metrics = await createMetrics(values, version);
  const parkingMachine = await openMachine({ values, devices, workerId, log });
  const worker = createWorker({
    workerId,
    incarnation,
    outbox,
    version,
    devices,
    drainMs,
    forceMs,
    link,
    executor,
    // The lines of several workers share one stream.
    log: isSupervised ? log.child({ worker: workerId }) : log,
    handlerVersion: values.handlerVersion,
    parkingMachine,
    isSpare: readVariable(SPARE_VARIABLE) !== undefined,
    before,
    // Under `dev`, the author sees each failure, so the breaker stays off.
    breakAfter: values.underDev ? 0 : values.breakAfter,
    breakerState: readBreaker(),
    stuckAfterMs: values.graceMs + STUCK_AFTER_GRACE_MS,
    ...(values.authTimeout > 0 && { authTimeoutMs: values.authTimeout * 1_000 }),
    observer: observeForParent(channel, metrics?.observer),
    // `millrace dev` prints failures itself, with their stacks.
    ...(values.underDev && { failureLevel: 'debug' as const }),
    ...(memoryLimit !== undefined && { memoryLimitBytes: memoryLimit * 2 ** 20 }),
  });
  const feed = await openFeed({ isSupervised, values, devices, worker, log });
  const signals = listenForStop();
  const parent = new SupervisedWorker({ channel, worker, workerId, metrics });
  channel.send({ type: 'identity', workerId, incarnation });
  if (values.underDev) process.on('disconnect', () => process.exit(EXIT.failed));
  // A supervisor that dies while this process exits must not count as a second signal.
  if (isSupervised) void signals.first.then(() => process.removeAllListeners('disconnect'));
  let abandoned: AbandonedFolders | undefined;
  let port: HealthServer | undefined;
  try {
    // Without a type: an earlier worker may have had other GPUs.
    abandoned = await startAbandonedFolders({ values, workerId, version, devices: found, log });
    const isServed = !isSupervised && !values.underDev;
    if (isServed) port = await openWorkerPort({ values, worker, metrics, log });
    feed?.start();
    return await live(worker, signals, parent);
  } catch (error) {
    if (error instanceof UnfitHandlerError) await link.reportUnfit?.(error.check, error.message);
    throw error;
  } finally {
    // A supervisor's signal may arrive late and must not interrupt the exit.
    if (!isSupervised) signals.release();
    feed?.stop();
    await abandoned?.close();
    await link.close();
    await folder.close();
    await port?.close();
    if (isStuck(worker.state)) onStuck();
  }
}

/** The error of a worker that had started: its log has the reason. */
class LifeError extends CommandError {}

/** A check that the handler has registered failed. */
class UnfitHandlerError extends LifeError {
  override readonly exitCode: number = EXIT.unfit;
  readonly check: string;

  constructor(check: string, message: string) {
    super(message);
    this.check = check;
  }
}

class LoadError extends LifeError {
  override readonly exitCode: number = EXIT.notLoaded;
}

class RefusedError extends LifeError {
  override readonly exitCode: number = EXIT.refused;
}

/** Another process may succeed. */
class SetupError extends LifeError {}

async function live(
  worker: Worker,
  signals: StopSignals,
  parent: SupervisedWorker,
): Promise<number> {
  void signals.first.then(() => parent.beginExit(() => worker.drain()));
  forceOnSecond(signals);
  try {
    // A worker that stops during its start does not wait for the answer to its hello.
    await Promise.race([worker.start(), worker.ended]);
  } catch (error) {
    // The worker's threads have then ended, or are known to be stuck.
    await worker.ended;
    if (error instanceof HandlerNotLoadedError && error.check !== undefined) {
      throw new UnfitHandlerError(error.check, error.message);
    }
    if (error instanceof HandlerNotLoadedError && error.stage === 'usage') {
      throw new UsageError(error.message);
    }
    if (error instanceof HandlerNotLoadedError && error.stage === 'setup') {
      throw new SetupError(error.message);
    }
    if (error instanceof HandlerNotLoadedError) throw new LoadError(error.message);
    if (!(error instanceof LinkError)) throw error;
    const isRefused = error.code === 'unauthorized';
    throw isRefused ? new RefusedError(error.message) : new LifeError(error.message);
  }
  if (worker.state.name === 'ready') parent.reportReady();
  // Not at the end, because a killed worker has none.
  flushCompileCache();
  const end = await worker.ended;
  if (end.name === 'failed') {
    throw end.isRefused ? new RefusedError(end.reason) : new LifeError(end.reason);
  }
  if (end.name !== 'stopped') return EXIT.failed;
  if (end.recycle) parent.reportRecycling(end.recycle.reason);
  else if (!parent.isExiting) parent.reportDismissed();
  const code = end.result.delivered ? EXIT.ok : EXIT.failed;
  parent.reportExiting(code);
  return code;
}

function isStuck(state: WorkerState): boolean {
  const isOver = state.name === 'stopped' || state.name === 'failed';
  return isOver && state.recycle?.isStuck === true;
}

async function createMetrics(values: WorkerFlags, version: string) {
  if (values.healthPort === undefined || values.underDev) return undefined;
  const { createWorkerMetrics } = await import('../../worker/health/worker-metrics.ts');
  return createWorkerMetrics({ clock: systemClock, version });
}

interface Feeding {
  isSupervised: boolean;
  values: WorkerFlags;
  devices: readonly Device[];
  worker: Worker;
  log: Log;
}

/** A supervisor samples the GPUs of all its workers. */
async function openFeed({ isSupervised, ...own }: Feeding) {
  if (isSupervised || own.devices.every(({ kind }) => kind === 'cpu')) return undefined;
  const { checkGpuSampling, createSingleGpuFeed } = await import('./worker-machine.ts');
  checkGpuSampling(own.values);
  return createSingleGpuFeed(own);
}

/** A machine without a GPU loads no code for parking. */
async function openMachine(of: Omit<Feeding, 'isSupervised' | 'worker'> & { workerId: string }) {
  if (of.devices.every(({ kind }) => kind === 'cpu')) return undefined;
  const { openParkingMachine } = await import('./worker-machine.ts');
  return openParkingMachine(of);
}

interface WorkerPort {
  values: WorkerFlags;
  worker: Worker;
  metrics: WorkerMetrics | undefined;
  log: Log;
}

async function openWorkerPort({ log, metrics, values, worker }: WorkerPort) {
  const { healthHost, healthPort } = values;
  if (healthPort === undefined) return undefined;
  const { probeWorker } = await import('../../worker/health/health-server.ts');
  return openHealthPort({
    healthHost,
    healthPort,
    log,
    ...probeWorker(() => worker.health()),
    collectMetrics: async () => (await metrics?.collect(worker.health())) ?? '',
  });
}

/** The devices to which the supervisor pinned this process. */
function readDevices(): Device[] | undefined {
  const given = readVariable(DEVICE_SET_VARIABLE);
  // The supervisor wrote this JSON.
  return given === undefined ? undefined : (JSON.parse(given) as Device[]);
}

function readBreaker(): BreakerState | undefined {
  const given = readVariable(BREAKER_VARIABLE);
  // The supervisor wrote this JSON.
  return given === undefined ? undefined : (JSON.parse(given) as BreakerState);
}

function addType(device: Device, gpuTypeId: string | undefined): Device {
  return device.kind === 'gpu' && gpuTypeId !== undefined ? { ...device, gpuTypeId } : device;
}

/** Returns all devices that the environment shows, because the process is not pinned. */
async function detectDevices(values: WorkerFlags, log: Log): Promise<Device[]> {
  if (values.devices !== undefined && values.devices !== 'cpu') {
    throw new UsageError(
      '--devices does not work with --unsupervised; set CUDA_VISIBLE_DEVICES in the environment',
    );
  }
  const { findDevices } = await import('./worker-machine.ts');
  return findDevices(values, log);
}

/** Returns the worker's identity and outbox. @throws CommandError if the identity is in use */
async function openFolder(values: WorkerFlags, log: Log): Promise<WorkerFolder> {
  const { stateDir, stateOwner, workerId, incarnation, endpoint: endpointId } = values;
  const { podId = stateOwner } = values;
  if (stateDir === undefined) {
    log[values.underDev ? 'debug' : 'info'](
      'outbox is in memory only, undelivered outcomes are lost when the process exits; set --state-dir to keep them',
    );
    return {
      workerId: workerId ?? createWorkerId(),
      incarnation: incarnation ?? Date.now(),
      outbox: new MemoryOutbox(),
      close: async () => {},
    };
  }
  const { openWorkerFolder, StateFolderError } = await import(
    '../../worker/outbox/state-folder.ts'
  );
  const identity = {
    stateDir,
    workerId,
    incarnation,
    endpointId,
    podId,
    createWorkerId,
    removeWhenDelivered: stateOwner !== undefined,
  };
  try {
    return await openWorkerFolder({ ...identity, clock: systemClock, log });
  } catch (error) {
    throw error instanceof StateFolderError
      ? new CommandError(`--state-dir: ${error.message}`)
      : error;
  }
}

/** Digits of the random part of a worker's ID. */
const ID_DIGITS = 8;

interface AbandonedFoldersStart {
  values: WorkerFlags;
  workerId: string;
  version: string;
  devices: readonly Device[];
  log: Log;
}

/**
 * Delivers outcomes of workers that no longer run. Not on RunPod, where a pod keeps its ID: a
 * second link with another ID would send pings for this pod that do not name its jobs.
 */
export async function startAbandonedFolders({ values, ...rest }: AbandonedFoldersStart) {
  const { stateDir, stateOwner, endpoint: endpointId, url } = values;
  if (stateDir === undefined || url === '') return undefined;
  const { AbandonedFolders } = await import('../../worker/outbox/abandoned-folders.ts');
  const { log } = rest;
  const terms = {
    stateDir,
    podId: values.podId ?? stateOwner,
    isExclusiveToPod: stateOwner !== undefined,
    endpointId,
    clock: systemClock,
    openLink: () => openLink(values, log),
  } as const;
  const abandoned = new AbandonedFolders({ ...rest, ...terms });
  abandoned.start();
  return abandoned;
}

/**
 * Returns the host's name, reduced to valid characters, and a random part. Containers may share
 * host name and process ID, and two workers with one ID would end each other's sessions.
 */
function createWorkerId(): string {
  const host = hostname()
    .replaceAll(/[^A-Za-z0-9._-]/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, 100);
  return `${host || 'worker'}-${createRandomId().slice(0, ID_DIGITS)}`;
}
