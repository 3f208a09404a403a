// This machine as pods use it: its engine with the facts that it needs, what pods may hold, the use of its GPUs, the
// folders of workers, and the user that pods run as.

import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statfsSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { constrainedMemory } from 'node:process';
import { type Clock, systemClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { launcherPath } from '../base/package-info.ts';
import type { EngineKind } from '../control/endpoints/templates.ts';
import { type Amounts, limitAmounts } from '../control/limits/capacity.ts';
import type { Containment } from '../engine/containment.ts';
import { type Container, type ContainerStats, type Engine, EngineError } from '../engine/engine.ts';
import { findUnreadable, type PodUser, providePodFolder } from '../engine/process/pod-user.ts';
import type { Device } from '../wire/link/worker-link.ts';
import { readNvidiaSmi, type SmiReading } from '../worker/gpu/nvidia-smi.ts';
import type { SmiGpu } from '../worker/gpu/nvidia-smi-report.ts';
import { WorkerFolders } from './compute/worker-folders.ts';
import { readEngineName } from './files/data-folder.ts';
import { type KubernetesChoice, readKubernetesSettings } from './files/kubernetes-file.ts';
import { describeError, PlatformOptionError } from './option-error.ts';
import type { CapacityChoice, CompleteOptions } from './platform-options.ts';

export interface Machine {
  /** Undefined: pods cannot run. */
  engine: Engine | undefined;
  limits: Amounts | undefined;
  /** For an engine without state volumes. */
  workerFolders: WorkerFolders | undefined;
}

/** `openFence`: for an engine that several nodes share. @throws PlatformOptionError */
export async function openMachine(
  { compute, dataFolder, log }: CompleteOptions,
  podUser: PodUser | undefined,
  openFence?: () => () => void,
): Promise<Machine> {
  if (dataFolder === undefined) {
    return { engine: undefined, limits: undefined, workerFolders: undefined };
  }
  const { capacity, containment, devices = [], dockerHost, engine: kind, kubernetes } = compute;
  const { workerEnvironment } = compute;
  const limits = measureLimits(capacity, { engine: kind, dataFolder });
  const usage = new GpuUsage('nvidia-smi');
  const measureGpus = (uuids: readonly string[]) => usage.measure(uuids);
  const parts = { kind, dockerHost, kubernetes, dataFolder, devices, measureGpus, log };
  const engine = await openEngine({ ...parts, podUser, containment, openFence, workerEnvironment });
  const workerFolders =
    kind === 'process'
      ? new WorkerFolders({ path: join(dataFolder, 'workers'), user: podUser, log })
      : undefined;
  return { engine, limits, workerFolders };
}

interface EngineOptions {
  kind: EngineKind;
  dockerHost?: string | undefined;
  kubernetes?: KubernetesChoice | undefined;
  dataFolder: string;
  /** Devices for pods. */
  devices: readonly Device[];
  /** Measures GPUs by UUID. */
  measureGpus: (uuids: readonly string[]) => Promise<ContainerStats['gpus']>;
  podUser?: PodUser | undefined;
  /** For the engine `docker`; `pids` also for `process`. */
  containment?: Containment | undefined;
  /** Engine `process`: variables of workers. */
  workerEnvironment?: Readonly<Record<string, string>> | undefined;
  /** For the engine `kubernetes`: see KubernetesEngineOptions. */
  openFence?: (() => () => void) | undefined;
  log: Log;
}

/** Loads only the requested engine. @throws PlatformOptionError */
async function openEngine(options: EngineOptions): Promise<Engine | undefined> {
  const { containment, dataFolder, devices, kind, log, measureGpus, podUser } = options;
  if (kind === 'none') return undefined;
  if (kind === 'docker') return openDocker(options);
  if (kind === 'kubernetes') return openKubernetes(options);
  const { ProcessEngine } = await import('../engine/process/process-engine.ts');
  return new ProcessEngine({
    folder: join(dataFolder, 'pods'),
    log,
    devices,
    measureGpus,
    podUser,
    maxProcesses: containment?.pids,
    runHandler: {
      execPath: process.execPath,
      args: [launcherPath, 'worker'],
      // Node's compile cache: with a cache in a temporary folder of its own, a worker's start takes
      // twice as long.
      env: { ...options.workerEnvironment, NODE_COMPILE_CACHE: locateCode(dataFolder) },
    },
  });
}

/** The API server is first called when pods are listed. */
async function openKubernetes(options: EngineOptions): Promise<Engine> {
  const { dataFolder, kubernetes, log, openFence } = options;
  const { KubernetesEngine } = await import('../engine/kubernetes/kubernetes-engine.ts');
  const { environment = {}, kubeconfig, namespace } = kubernetes ?? {};
  const { settings = readKubernetesSettings(undefined) } = kubernetes ?? {};
  const platform = settings.platform ?? readEngineName(dataFolder);
  const access = { kubeconfig, namespace, environment };
  return new KubernetesEngine({ platform, access, settings, openFence, log });
}

async function openDocker(options: EngineOptions): Promise<Engine> {
  const { containment, dataFolder, devices, dockerHost: host, log, measureGpus } = options;
  const { DockerEngine } = await import('../engine/docker/docker-engine.ts');
  const platform = readEngineName(dataFolder);
  try {
    const machineGpus = devices.filter(({ kind }) => kind === 'gpu').length;
    return new DockerEngine({
      platform,
      log,
      measureGpus,
      machineGpus,
      ...(host !== undefined && { host }),
      ...(containment && { containment }),
    });
  } catch (error) {
    throw new PlatformOptionError('invalid', 'compute.dockerHost', describeError(error));
  }
}

const GB = 1_073_741_824;
const UNBOUNDED = 100_000_000;

export interface MachineOptions {
  engine: EngineKind;
  dataFolder: string;
}

/** Measures the amounts that the operator does not set. */
export function measureLimits(
  { machine, overcommit }: CapacityChoice,
  options: MachineOptions,
): Amounts {
  return limitAmounts({ ...measureMachine(options), ...machine }, overcommit);
}

function measureMachine({ dataFolder, engine }: MachineOptions): Amounts {
  // The cluster knows its machines, and a quota of the namespace bounds the pods.
  if (engine === 'kubernetes') return { memoryGb: UNBOUNDED, vcpus: UNBOUNDED, diskGb: UNBOUNDED };
  // Pods of the process engine share this process's own memory limit.
  const own = engine === 'process' ? constrainedMemory() : 0;
  const memory = own > 0 ? Math.min(own, totalmem()) : totalmem();
  const { blocks, bsize } = statfsSync(dataFolder);
  return {
    memoryGb: Math.max(1, Math.floor(memory / GB)),
    vcpus: availableParallelism(),
    // A file system that reports no size has no limit.
    diskGb: blocks === 0 ? Number.MAX_SAFE_INTEGER : Math.max(1, Math.floor((blocks * bsize) / GB)),
  };
}

const READING_SERVES_MS = 2_000;

/** Measures the utilization of GPUs in pods with nvidia-smi. One reading serves all calls within two seconds. */
export class GpuUsage {
  readonly #command: string;
  readonly #clock: Clock;
  #reading: Promise<SmiReading> | undefined;
  #readAt = 0;

  /** `command`: path of nvidia-smi. */
  constructor(command: string, clock: Clock = systemClock) {
    this.#command = command;
    this.#clock = clock;
  }

  /**
   * Returns the GPUs that were found, in the order of the UUIDs; none if the driver does not
   * respond.
   */
  async measure(uuids: readonly string[]): Promise<ContainerStats['gpus']> {
    if (uuids.length === 0) return [];
    const reading = await this.#read();
    if (reading.kind === 'fault') return [];
    const { gpus } = reading.report;
    return uuids.flatMap((uuid) => gpus.filter((gpu) => gpu.uuid === uuid).map(describe));
  }

  #read(): Promise<SmiReading> {
    const now = this.#clock.now();
    if (!this.#reading || now - this.#readAt > READING_SERVES_MS) {
      this.#readAt = now;
      this.#reading = readNvidiaSmi({ command: this.#command });
    }
    return this.#reading;
  }
}

function describe({ memory, utilization = 0 }: SmiGpu): ContainerStats['gpus'][number] {
  const { totalBytes = 0, usedBytes = 0 } = memory;
  const share = totalBytes > 0 ? Math.round((usedBytes / totalBytes) * 100) : 0;
  return { util: Math.round(utilization), memoryUtil: Math.min(100, share) };
}

export interface LeftPods {
  kind: EngineKind;
  dockerHost?: string | undefined;
  kubernetes?: KubernetesChoice | undefined;
  dataFolder: string;
  log: Log;
}

/** An engine that does not answer must not delay the end of a platform, ms. */
const COUNT_MS = 3_000;

/** 0 if the engine does not answer. */
export function countLeftPods(place: LeftPods): Promise<number> {
  const counting = withEngine(place, async (engine) => (await listRunning(engine)).length);
  const { promise: late, resolve } = Promise.withResolvers<number>();
  const timer = setTimeout(() => resolve(0), COUNT_MS);
  return Promise.race([counting.catch(() => 0), late]).finally(() => clearTimeout(timer));
}

/**
 * Sends SIGTERM to each pod, and SIGKILL after `graceMs`. Their records stay as they are, so the next platform
 * starts the pods that it still wants. Resolves with how many it has stopped.
 * @throws PlatformOptionError if the engine does not answer
 */
export async function stopLeftPods(place: LeftPods, graceMs: number): Promise<number> {
  try {
    return await withEngine(place, async (engine) => {
      const ids = await listRunning(engine);
      await Promise.all(ids.map((id) => engine.stop(id, graceMs)));
      return ids.length;
    });
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    throw new PlatformOptionError('unusable', 'compute.engine', error.message);
  }
}

async function withEngine(
  place: LeftPods,
  act: (engine: Engine) => Promise<number>,
): Promise<number> {
  const engine = await openEngine({ ...place, devices: [], measureGpus: async () => [] });
  if (!engine) return 0;
  try {
    return await act(engine);
  } finally {
    await engine.close();
  }
}

async function listRunning(engine: Engine): Promise<string[]> {
  const containers = await engine.list();
  const isActive = ({ state }: Container) => state === 'running' || state === 'starting';
  return containers.filter(isActive).map(({ id }) => id);
}

/** The file that has this code; the package may have bundled it. */
const OWN_CODE = import.meta.filename;
const NOBODY = 65_534;
const MAX_ID = 2 ** 32 - 2;
const REMEDY =
  'make it readable (chmod o+rX on it and its folders), or run pods as root with `compute.podUser` root';

/** Folder of Node's compile cache, which workers share. */
export function locateCode(dataFolder: string): string {
  return join(dataFolder, 'code');
}

interface PodUserChoice {
  given: string | undefined;
  engine: string;
  dataFolder: string;
  /** By option name: files that the pods' user must not be able to read. */
  secretFiles: Readonly<Record<string, string | undefined>>;
  log: Log;
}

/**
 * The user that pods on the process engine run as. The operator may set one. Otherwise, if the platform is root, it is
 * `nobody`, unless that user cannot reach everything that pods need. Undefined: pods run as the platform's own user.
 * @throws PlatformOptionError
 */
export async function choosePodUser(choice: PodUserChoice): Promise<PodUser | undefined> {
  const { engine, given, log } = choice;
  if (engine !== 'process') return undefined;
  if (process.geteuid?.() !== 0) return refuseUnlessRoot(given);
  const user = given === undefined ? findNobody() : findUser(given);
  if (user.uid === 0) return undefined;
  const [path] = await findUnreachable(choice.dataFolder, user);
  if (path !== undefined) {
    const problem = `${path} cannot be read by ${user.name}, the user that pods would run as`;
    if (given !== undefined) throw refuse(`${problem}: ${REMEDY}`);
    log.warn({ path, user: user.name }, `pods run as root: ${problem}`);
    return undefined;
  }
  await checkSecrets(choice, user);
  log.info({ user: user.name, uid: user.uid, gid: user.gid }, `pods run as ${user.name}`);
  return user;
}

/**
 * Lets the pods' user pass through the folder, but not list it or read anything except its own
 * files.
 */
export async function shareDataFolder(dataFolder: string, user: PodUser): Promise<void> {
  // From here on the platform's new files are private.
  process.umask(0o077);
  for (const entry of readdirSync(dataFolder, { withFileTypes: true })) {
    if (entry.isFile()) chmodSync(join(dataFolder, entry.name), 0o600);
  }
  chmodSync(dataFolder, 0o711);
  await providePodFolder(locateCode(dataFolder), user);
}

function refuseUnlessRoot(given: string | undefined): undefined {
  if (given === undefined) return undefined;
  const own = process.geteuid?.();
  if (findUser(given).uid === own) return undefined;
  throw refuse(`only root can run pods as another user, and this platform runs as UID ${own}`);
}

/** A folder that others cannot enter hides everything inside it. */
async function findUnreachable(dataFolder: string, user: PodUser): Promise<string[]> {
  const parent = dirname(dataFolder);
  // Missing folders are created here; otherwise they would be created closed.
  mkdirSync(parent, { recursive: true });
  return findUnreadable([process.execPath, launcherPath, OWN_CODE, parent], user);
}

async function checkSecrets({ secretFiles }: PodUserChoice, user: PodUser): Promise<void> {
  for (const [option, path] of Object.entries(secretFiles)) {
    if (path === undefined || !existsSync(path)) continue;
    if ((await findUnreadable([resolve(path)], user)).length > 0) continue;
    throw new PlatformOptionError(
      'invalid',
      option,
      `${path} can be read by ${user.name}, the user that pods run as; run chmod 600 ${path}`,
    );
  }
}

function findNobody(): PodUser {
  return readUser('nobody') ?? { uid: NOBODY, gid: NOBODY, name: 'nobody' };
}

function findUser(given: string): PodUser {
  const [, uid, gid = uid] = /^(\d+)(?::(\d+))?$/.exec(given) ?? [];
  if (uid === undefined || gid === undefined) {
    const user = /^[A-Za-z_][A-Za-z0-9_.-]*\$?$/.test(given) ? readUser(given) : undefined;
    if (user) return user;
    throw refuse(`no user ${given} exists; give a name or UID[:GID]`);
  }
  if (Number(uid) > MAX_ID || Number(gid) > MAX_ID) {
    throw refuse(`${given}: a UID or GID is at most ${MAX_ID}`);
  }
  return { uid: Number(uid), gid: Number(gid), name: `UID ${uid}` };
}

/** Looks the user up in /etc/passwd, and with the system's own tools if it is stored elsewhere. */
function readUser(name: string): PodUser | undefined {
  const local = existsSync('/etc/passwd') ? readFileSync('/etc/passwd', 'utf8') : '';
  const line = local.split('\n').find((each) => each.startsWith(`${name}:`));
  const [, , localUid, localGid] = line?.split(':') ?? [];
  if (localUid && localGid) return { uid: Number(localUid), gid: Number(localGid), name };
  const { status, stdout } = spawnSync('id', ['--', name], { encoding: 'utf8' });
  const [, uid, gid] = (status === 0 && /^uid=(\d+)\S* gid=(\d+)/.exec(stdout)) || [];
  return uid === undefined || gid === undefined
    ? undefined
    : { uid: Number(uid), gid: Number(gid), name };
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', 'compute.podUser', problem);
}
