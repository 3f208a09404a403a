// The engine without containers: a pod is a group of processes on this machine, with a folder for a
// disk and an environment built from nothing. All pods run as one user and can access each other's
// files.
import { hash } from 'node:crypto';
import { resolve } from 'node:path';
import { type Clock, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ProcessEntry } from '../../base/process/process-table.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import {
  type Container,
  type ContainerSpec,
  type ContainerStats,
  type Engine,
  type EngineCapabilities,
  EngineError,
  type NetworkVolumes,
} from '../engine.ts';
import { canLimitFolder } from '../folder-quotas.ts';
import {
  type CgroupHome,
  findCgroupHome,
  hasRunOutOfMemory,
  listGroups,
  removeEmptyGroups,
  removeGroups,
  UsageMeter,
} from './cgroups.ts';
import { type ContainerFolder, ContainerFolders } from './container-folders.ts';
import { ContainerWatch, type RunningContainer, readLogEnd } from './container-watch.ts';
import { findUnreadable, type PodUser } from './pod-user.ts';
import { findMembers, killAll, Remains, requestExit } from './run-end.ts';
import { type HandlerCommand, makeCommand, startRun } from './run-start.ts';
import {
  describeContainer,
  describeDamaged,
  findRun,
  forgetBefore,
  isRunning,
  noteOutOfMemory,
  PortPool,
  runFile,
  type SeenRun,
} from './runs.ts';

export interface ProcessEngineOptions {
  /** Folder of all its data, for one platform; created if it is missing. */
  folder: string;
  log: Log;
  /**
   * Devices of this machine that pods may get and that are hidden from all other pods. Default:
   * none.
   */
  devices?: readonly Device[];
  /** Default: pods with a handler are refused. */
  runHandler?: HandlerCommand;
  /** The user that pods run as; only root can choose one. Default: the platform's own. */
  podUser?: PodUser | undefined;
  /** Measures the GPUs with these UUIDs, in their order. Default: not measured. */
  measureGpus?: (uuids: readonly string[]) => Promise<ContainerStats['gpus']>;
  /**
   * Where control groups can be created. Default: detected; without any, limits are not enforced.
   */
  cgroups?: CgroupHome;
  /** Processes and threads of a pod; 0: no limit. Default: 4,096. */
  maxProcesses?: number | undefined;
  clock?: Clock;
}

const MAX_PROCESSES = 4_096;

export class ProcessEngine implements Engine {
  readonly kind = 'process';
  readonly networkVolumes: NetworkVolumes = {
    remove: (source) => attempt(() => this.#folders.removeNetworkVolume(source)),
    list: () => attempt(() => this.#folders.listNetworkVolumes()),
    grow: (source, sizeGb) => attempt(() => this.#folders.growNetworkVolume(source, sizeGb)),
  };
  readonly #options: ProcessEngineOptions;
  readonly #clock: Clock;
  readonly #maxProcesses: number;
  readonly #devices: readonly Device[];
  readonly #folders: ContainerFolders;
  #cgroupHome: CgroupHome | undefined;
  /** Found with the first question, which takes a process. */
  #limitsFolders: boolean | undefined;
  readonly #ports = new PortPool();
  readonly #watch: ContainerWatch;
  /** By ID, the file of the ended run whose remains are gone. */
  readonly #settled = new Map<string, string>();
  /** By ID, the file of the last run that this engine has seen running: it sees the end of that run, too. */
  readonly #watched = new Map<string, string>();
  readonly #meter = new UsageMeter();
  readonly #remains: Remains;
  /** Prefix of its groups' names, because groups belong to the whole machine. */
  readonly #groupPrefix: string;
  /**
   * Groups older than this engine: of running runs, or of runs that never began or ended unseen.
   */
  #earlierGroups: readonly string[] = [];
  readonly #closing = new AbortController();

  constructor(options: ProcessEngineOptions) {
    const { clock = systemClock, devices = [], folder, log, podUser } = options;
    this.#options = options;
    this.#clock = clock;
    this.#maxProcesses = options.maxProcesses ?? MAX_PROCESSES;
    this.#devices = devices;
    this.#folders = new ContainerFolders({ root: folder, user: podUser, log });
    this.#groupPrefix = `millrace-${hash('sha256', resolve(folder), 'hex').slice(0, 8)}.`;
    this.#remains = new Remains({
      folders: this.#folders,
      findCgroups: () => this.#findCgroups(),
      groupPrefix: this.#groupPrefix,
      clock: this.#clock,
      log,
      releasePorts: (ports) => this.#ports.release(ports),
    });
    this.#watch = new ContainerWatch({ log, listRunning: () => this.#listRunning() });
  }

  /** Found with the first container: the search tries out groups, which takes a process for each. */
  #findCgroups(): CgroupHome {
    if (this.#cgroupHome) return this.#cgroupHome;
    const { cgroups = findCgroupHome(), log } = this.#options;
    this.#cgroupHome = cgroups;
    this.#earlierGroups = listGroups(cgroups, this.#groupPrefix);
    const { limits } = this.#describe(cgroups);
    log.info({ ...limits, groups: cgroups.tracking !== null }, 'resource limits of pods');
    return cgroups;
  }

  get capabilities(): EngineCapabilities {
    return this.#describe(this.#findCgroups());
  }

  #describe(groups: CgroupHome): EngineCapabilities {
    this.#limitsFolders ??= canLimitFolder(resolve(this.#options.folder));
    const limitsFolders = this.#limitsFolders;
    return describeCapabilities({ groups, maxProcesses: this.#maxProcesses, limitsFolders });
  }

  create(spec: ContainerSpec): Promise<void> {
    return attempt(async () => {
      this.#check(spec);
      await this.#checkHandler(spec);
      // Without a container, nothing of the pod may run.
      if (!(await this.#folders.find(spec.id))) await this.#remains.clear(spec.id);
      // No image is pulled, so the login is not written down.
      await this.#folders.make({ ...spec, registry: null });
    });
  }

  start(id: string, gpus?: readonly string[]): Promise<void> {
    return attempt(async () => {
      const found = await this.#folders.find(id);
      if (!found) throw new EngineError('unavailable', `container of ${id} not found`);
      const last = await this.#findRun(found);
      if (isRunning(last)) return;
      const given = gpus ?? found.spec.gpus;
      this.#requireGpus(given);
      if (last) await this.#settle(found, last);
      await this.#folders.prepare(found);
      await this.#begin(found, last, given);
    });
  }

  stop(id: string, graceMs: number): Promise<void> {
    return attempt(async () => {
      const folder = await this.#folders.find(id);
      const run = folder && (await this.#findRun(folder));
      if (!folder || !run) return;
      const known = findMembers(searchFor(run));
      const terms = { clock: this.#clock, graceMs, closing: this.#closing.signal };
      if (isRunning(run)) await requestExit({ ...terms, record: run.record });
      await this.#settle(folder, run, known);
      this.#watch.notify(id);
    });
  }

  remove(id: string, volumes: 'keep' | 'remove'): Promise<void> {
    return attempt(async () => {
      await this.#folders.discard(id);
      await this.#remains.clear(id);
      if (volumes === 'remove') await this.#folders.removeVolumes(id);
      this.#settled.delete(id);
      this.#watched.delete(id);
      this.#meter.forget(id);
      this.#watch.notify(id);
    });
  }

  inspect(id: string): Promise<Container | undefined> {
    return attempt(async () => {
      const folder = await this.#folders.find(id);
      if (!folder) return (await this.#folders.isDamaged(id)) ? describeDamaged(id) : undefined;
      const run = await this.#findRun(folder);
      if (isRunning(run)) this.#remains.noteRun(id, run.record);
      return describeContainer(folder, run?.end ? await this.#settle(folder, run) : run);
    });
  }

  list(): Promise<Container[]> {
    return attempt(async () => {
      await this.#remains.sweep();
      const found: Container[] = [];
      const ids = await this.#folders.listIds();
      // Finds the groups that an earlier engine left.
      if (ids.length > 0) this.#findCgroups();
      for (const id of ids) {
        // An unreadable container must not hide the others.
        const container = await this.inspect(id).catch((error: unknown) => {
          this.#options.log.error({ err: error, id }, 'reading a container failed');
        });
        if (container) found.push(container);
      }
      // The results of ended runs have just been read from their groups.
      removeEmptyGroups(this.#earlierGroups);
      this.#earlierGroups = [];
      return found;
    });
  }

  stats(id: string): Promise<ContainerStats | undefined> {
    return attempt(async () => {
      const folder = await this.#folders.find(id);
      const run = folder && (await this.#findRun(folder));
      if (!folder || !isRunning(run)) return undefined;
      const usage = this.#meter.measure(folder.spec, run, this.#clock.now());
      const gpus = run.record.gpus;
      return { ...usage, gpus: (await this.#options.measureGpus?.(gpus)) ?? [] };
    });
  }

  readLog(id: string, maxBytes: number): Promise<Uint8Array> {
    return attempt(async () => {
      const folder = await this.#folders.find(id);
      return folder ? readLogEnd(folder.log, maxBytes) : new Uint8Array();
    });
  }

  watch(onChange: (id: string) => void): () => void {
    return this.#watch.listen(onChange);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#watch.close();
  }

  #check(spec: ContainerSpec): void {
    makeCommand(spec, this.#options.runHandler);
    if (spec.network !== null) {
      throw new EngineError('refused', 'the process engine has no networks');
    }
    this.#requireGpus(spec.gpus);
  }

  /** @throws EngineError `refused` */
  #requireGpus(uuids: readonly string[]): void {
    for (const uuid of uuids) {
      if (this.#devices.some((device) => device.kind === 'gpu' && device.uuid === uuid)) continue;
      throw new EngineError('refused', `GPU ${uuid} not found on this machine`);
    }
  }

  async #checkHandler({ handler }: ContainerSpec): Promise<void> {
    const { podUser } = this.#options;
    if (handler === null || !podUser) return;
    const path = resolve(handler);
    if ((await findUnreadable([path], podUser)).length === 0) return;
    const problem = `the handler ${path} cannot be read by ${podUser.name}, the user that pods run as`;
    const remedy =
      'let others read it and enter its folders, or start the platform with --pod-user root';
    throw new EngineError('refused', `${problem}: ${remedy}`);
  }

  async #begin(
    folder: ContainerFolder,
    last: SeenRun | undefined,
    gpus: readonly string[],
  ): Promise<void> {
    const { id, ports } = folder.spec;
    const number = (last?.number ?? 0) + 1;
    const given = await this.#ports.assign(ports, last?.record?.ports ?? []);
    let isOurs = false;
    try {
      const child = await startRun({
        folder,
        number,
        ports: given,
        gpus,
        cgroups: this.#findCgroups(),
        maxProcesses: this.#maxProcesses,
        groupPrefix: this.#groupPrefix,
        devices: this.#devices,
        runHandler: this.#options.runHandler,
        user: this.#options.podUser,
        clock: this.#clock,
      });
      isOurs = child !== undefined;
      if (isOurs) this.#watched.set(id, runFile(folder.path, number));
      const run = await this.#findRun(folder);
      if (run) await forgetBefore(run);
      if (run?.record) {
        this.#remains.noteRun(id, run.record);
        this.#watch.add({ id, leader: run.record.leader, printed: folder.log }, child);
      }
    } finally {
      if (!isOurs) this.#ports.release(given);
    }
  }

  async #findRun({ path, spec }: ContainerFolder): Promise<SeenRun | undefined> {
    const run = await findRun(path, this.#watched.get(spec.id));
    if (isRunning(run)) this.#watched.set(spec.id, run.file);
    return run;
  }

  /**
   * Kills the run's remaining processes, and stores the facts that would be lost with its groups.
   */
  async #settle(
    folder: ContainerFolder,
    run: SeenRun,
    known: readonly ProcessEntry[] = [],
  ): Promise<SeenRun> {
    const { id } = folder.spec;
    const { file, record } = run;
    if (this.#settled.get(id) === file) return run;
    await killAll({ ...searchFor(run), known }, this.#clock);
    const ended = (await this.#findRun(folder)) ?? run;
    if (ended.file !== file || !record) return ended;
    if (hasRunOutOfMemory(record.groups)) await noteOutOfMemory(run);
    await removeGroups(record.groups, this.#clock);
    this.#ports.release(record.ports);
    this.#settled.set(id, file);
    return (await this.#findRun(folder)) ?? ended;
  }

  async #listRunning(): Promise<RunningContainer[]> {
    const running: RunningContainer[] = [];
    for (const id of await this.#folders.listIds()) {
      const folder = await this.#folders.find(id);
      const run = folder && (await this.#findRun(folder));
      if (!folder || !isRunning(run)) continue;
      this.#ports.reserve(run.record.ports);
      running.push({ id, leader: run.record.leader, printed: folder.log });
    }
    return running;
  }
}

function searchFor({ file, record }: SeenRun) {
  return { name: file, records: record ? [record] : [] };
}

/** An error of the file system or the kernel may be temporary. */
async function attempt<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof EngineError) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new EngineError('unavailable', message, { cause: error });
  }
}

interface ProcessMachine {
  groups: CgroupHome;
  /** Of a pod; 0: no limit. */
  maxProcesses: number;
  /** The file system of volumes and disks has project quotas, and the platform may set them. */
  limitsFolders: boolean;
}

export function describeCapabilities({
  groups: { cpu, memory, pids },
  limitsFolders,
  maxProcesses,
}: ProcessMachine): EngineCapabilities {
  return {
    gpus: 'uuid',
    gpusAtStart: true,
    disk: { keptOverStop: true, limit: 'some' },
    limits: {
      memory: memory !== null,
      cpu: cpu !== null,
      processes: pids !== null && maxProcesses > 0,
    },
    globalNetworking: false,
    ports: { protocols: ['http', 'tcp', 'udp'], reach: 'machine' },
    mounts: {
      persistent: true,
      network: ['folder', 'name'],
      sizeLimit: limitsFolders ? 'always' : 'never',
    },
    registries: false,
    healthChecks: false,
    kubernetes: null,
  };
}
