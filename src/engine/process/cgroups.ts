// Creates control groups, if the kernel permits. A group holds every process of a run, even hidden
// ones, limits their number, memory and processor time, and measures their use. Versions 1 and 2.
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { type Clock, sleep } from '../../base/clock.ts';
import {
  findBeneath,
  type ProcessEntry,
  readProcess,
  readProcesses,
  readResidentBytes,
  TICKS_PER_SECOND,
} from '../../base/process/process-table.ts';
import { type ContainerSpec, type ContainerStats, toShare } from '../engine.ts';
import type { RunGroups, RunningRun, RunRecord } from './runs.ts';

/** Period over which processor time is limited, microseconds. */
const PERIOD_US = 100_000;
const BYTES_PER_GB = 1_073_741_824;

export interface CgroupHome {
  /** Folders in which groups can be created; null if none can. In version 2 all are the same. */
  tracking: string | null;
  memory: string | null;
  cpu: string | null;
  /** Number of processes and threads. */
  pids: string | null;
}

export const NO_CGROUPS: CgroupHome = { tracking: null, memory: null, cpu: null, pids: null };

interface Hierarchy {
  /** Mount point. */
  mount: string;
  /** The part of the hierarchy that is mounted there. */
  root: string;
  isUnified: boolean;
  /** Controllers of version 1. */
  controllers: readonly string[];
}

/** Finds the folders in which this process may create groups, below its own group. */
export function findCgroupHome(): CgroupHome {
  const hierarchies = parseMounts(readText('/proc/self/mountinfo'));
  const membership = readText('/proc/self/cgroup');
  const unified = hierarchies.find(({ isUnified }) => isUnified);
  const second = unified && enterUnified(locateOwn(unified, membership));
  const first = (controller: string) => {
    const found = hierarchies.find(({ controllers }) => controllers.includes(controller));
    const own = found && locateOwn(found, membership);
    return own !== undefined && canJoinBelow(own) ? own : null;
  };
  const memory = first('memory') ?? (second?.limits ? second.folder : null);
  const cpu = first('cpu') ?? (second?.limits ? second.folder : null);
  const counts = second?.limits && delegate(second.folder, ['pids']);
  const pids = first('pids') ?? (counts ? second.folder : null);
  return { memory, cpu, pids, tracking: second?.folder ?? memory ?? cpu ?? pids };
}

/** Lines of /proc/PID/mountinfo about control groups. */
export function parseMounts(text: string): Hierarchy[] {
  return text.split('\n').flatMap((line) => {
    const [front = '', back = ''] = line.split(' - ');
    const [, , , root, mount] = front.split(' ');
    const [type, , options = ''] = back.split(' ');
    if ((type !== 'cgroup' && type !== 'cgroup2') || root === undefined || mount === undefined) {
      return [];
    }
    const isUnified = type === 'cgroup2';
    return [{ mount, root, isUnified, controllers: isUnified ? [] : options.split(',') }];
  });
}

/** Finds the folder of the group that the text of /proc/PID/cgroup names for the hierarchy. */
export function locateOwn(hierarchy: Hierarchy, membership: string): string {
  const { controllers, isUnified, mount, root } = hierarchy;
  for (const line of membership.split('\n')) {
    const [, number, names = '', path = '/'] = /^(\d+):([^:]*):(.*)$/.exec(line) ?? [];
    const isOwn = isUnified
      ? number === '0' && names === ''
      : names !== '' && names.split(',').every((name) => controllers.includes(name));
    if (!isOwn) continue;
    return join(mount, relative(root, path.startsWith(root) ? path : root));
  }
  return mount;
}

/**
 * Only the root group can have processes of its own and also limit groups below it. If this
 * process's group cannot, the new groups become its siblings.
 */
function enterUnified(own: string): { folder: string; limits: boolean } | undefined {
  for (const folder of [own, dirname(own)]) {
    const isDelegated = delegate(folder, ['memory', 'cpu']);
    if (isDelegated && canJoinBelow(folder)) return { folder, limits: true };
  }
  return canJoinBelow(own) ? { folder: own, limits: false } : undefined;
}

function delegate(folder: string, controllers: readonly string[]): boolean {
  const path = join(folder, 'cgroup.subtree_control');
  const isThere = () => {
    const delegated = readText(path).split(/\s+/);
    return controllers.every((name) => delegated.includes(name));
  };
  if (isThere()) return true;
  return tryWrite(path, controllers.map((name) => `+${name}`).join(' ')) && isThere();
}

interface RunBounds {
  /** Null: no limit of memory and processor time. */
  limits: ContainerSpec['limits'];
  /** Processes and threads; 0: no limit. */
  processes: number;
}

/** Creates a group for the run in each of the folders and sets the limits. */
export function makeGroups(
  home: CgroupHome,
  name: string,
  { limits, processes }: RunBounds,
): RunGroups {
  const make = (folder: string | null) => {
    if (folder === null) return null;
    const path = join(folder, name);
    mkdirSync(path, { recursive: true });
    return path;
  };
  const groups = {
    tracking: make(home.tracking),
    memory: make(home.memory),
    cpu: make(home.cpu),
    pids: make(home.pids),
  };
  if (groups.pids !== null && processes > 0) {
    writeFileSync(join(groups.pids, 'pids.max'), `${processes}`);
  }
  if (!limits) return groups;
  const bytes = Math.round(limits.memoryGb * BYTES_PER_GB);
  const quota = Math.round(limits.vcpus * PERIOD_US);
  if (groups.memory !== null) limitMemory(groups.memory, bytes);
  if (groups.cpu !== null) limitCpu(groups.cpu, quota);
  return groups;
}

function limitMemory(group: string, bytes: number): void {
  if (tryWrite(join(group, 'memory.max'), `${bytes}`)) {
    tryWrite(join(group, 'memory.swap.max'), '0');
    return;
  }
  writeFileSync(join(group, 'memory.limit_in_bytes'), `${bytes}`);
  // Includes swap; not every kernel counts it.
  tryWrite(join(group, 'memory.memsw.limit_in_bytes'), `${bytes}`);
}

function limitCpu(group: string, quota: number): void {
  if (tryWrite(join(group, 'cpu.max'), `${quota} ${PERIOD_US}`)) return;
  writeFileSync(join(group, 'cpu.cfs_period_us'), `${PERIOD_US}`);
  writeFileSync(join(group, 'cpu.cfs_quota_us'), `${quota}`);
}

/**
 * From now on the group starts no more processes: otherwise one that forks fast enough could outrun its end. Does
 * nothing to a group that counts none.
 */
export function forbidForks(group: string): void {
  tryWrite(join(group, 'pids.max'), '0');
}

/** Moves the process into the groups. @throws Error if one of the groups refuses it */
export function joinGroups(groups: RunGroups, pid: number): void {
  for (const folder of listFolders(groups)) writeFileSync(join(folder, 'cgroup.procs'), `${pid}`);
}

/** PIDs of the processes in the group and in groups below it. */
export function listMembers(group: string): number[] {
  const folders = [group, ...listBelow(group)];
  const lines = folders.flatMap((folder) => readText(join(folder, 'cgroup.procs')).split('\n'));
  return lines.filter(Boolean).map(Number);
}

/** Whether the kernel killed a process of the run for lack of memory. */
export function hasRunOutOfMemory({ memory }: RunGroups): boolean {
  if (memory === null) return false;
  const text =
    readText(join(memory, 'memory.events')) || readText(join(memory, 'memory.oom_control'));
  return /^oom_kill [1-9]/m.test(text);
}

/** Time for the last processes of a killed group to disappear. */
const LEAVE_LIMIT_MS = 500;
const RECHECK_MS = 10;

export function removeGroups(groups: RunGroups, clock: Clock): Promise<void> {
  return removeFolders(listFolders(groups), clock);
}

/** A folder that still holds a process after a while stays. */
export async function removeFolders(folders: readonly string[], clock: Clock): Promise<void> {
  const giveUpAt = clock.now() + LEAVE_LIMIT_MS;
  for (const folder of folders) {
    for (const group of [...listBelow(folder), folder]) {
      while (!tryRemove(group) && clock.now() < giveUpAt) await sleep(clock, RECHECK_MS);
    }
  }
}

/** Name of a run's group; `once` distinguishes two calls that start the same run. */
export function nameGroup(
  prefix: string,
  {
    generation,
    id,
    number,
    once,
  }: { id: string; generation: number; number: number; once: string },
): string {
  return `${prefix}${id}.${generation}.${number}-${once}`;
}

/** Groups of the container's runs, found by name; of all generations unless one is given. */
export function listContainerGroups(
  home: CgroupHome,
  prefix: string,
  { generation, id }: { id: string; generation?: number | undefined },
): string[] {
  const start = generation === undefined ? `${prefix}${id}.` : `${prefix}${id}.${generation}.`;
  const end = generation === undefined ? /^\d+\.\d+-[0-9a-f]+$/ : /^\d+-[0-9a-f]+$/;
  return listGroups(home, start).filter((group) => end.test(basename(group).slice(start.length)));
}

/** Existing groups whose names have this prefix. */
export function listGroups(home: CgroupHome, prefix: string): string[] {
  return listFolders(home)
    .flatMap(listBelow)
    .filter((group) => basename(group).startsWith(prefix));
}

export function removeEmptyGroups(groups: readonly string[]): void {
  for (const group of groups) tryRemove(group);
}

/** Returns whether the group is gone; a non-empty one stays. */
function tryRemove(group: string): boolean {
  try {
    rmdirSync(group);
  } catch {
    return !existsSync(group);
  }
  return true;
}

/** The deepest first. */
function listBelow(folder: string): string[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .flatMap(({ name }) => [...listBelow(join(folder, name)), join(folder, name)]);
  } catch {
    return [];
  }
}

function listFolders({ cpu, memory, pids, tracking }: RunGroups): string[] {
  return [...new Set([tracking, memory, cpu, pids])].filter((folder) => folder !== null);
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Writes only to existing files: the kernel's folders allow no others. */
function tryWrite(path: string, text: string): boolean {
  try {
    writeFileSync(path, text, { flag: 'r+' });
    return true;
  } catch {
    return false;
  }
}

/** Permissions are not conclusive: only moving a process shows it. */
function canJoinBelow(folder: string): boolean {
  const probe = join(folder, `millrace-probe-${randomBytes(4).toString('hex')}`);
  try {
    mkdirSync(probe);
  } catch {
    return false;
  }
  const joined = spawnSync('/bin/sh', ['-c', 'echo $$ > "$0"', join(probe, 'cgroup.procs')]);
  rmdirSync(probe);
  return joined.status === 0;
}

interface CpuSample {
  /** File of the run. */
  file: string;
  /** Unix ms. */
  at: number;
  cpuTicks: number;
}

/** Measures a run's use as shares of its limits. Processor time is measured between two samples. */
export class UsageMeter {
  /** Last samples by ID. */
  readonly #samples = new Map<string, CpuSample>();

  /** Since the last sample of this run, or since its start. */
  measure(
    { id, limits }: ContainerSpec,
    { file, record }: RunningRun,
    now: number,
  ): Omit<ContainerStats, 'gpus'> {
    const processes = findProcesses(record);
    const known = this.#samples.get(id);
    const before = known?.file === file ? known : { at: record.startedAt, cpuTicks: 0 };
    const cpuTicks = sum(processes.map((process) => process.cpuTicks));
    this.#samples.set(id, { file, at: now, cpuTicks });
    const seconds = Math.max(1, now - before.at) / 1_000;
    const used = (cpuTicks - before.cpuTicks) / TICKS_PER_SECOND / seconds;
    const residentBytes = sum(processes.map(({ pid }) => readResidentBytes(pid)));
    return {
      cpu: toShare(used / (limits?.vcpus ?? availableParallelism())),
      memory: toShare(residentBytes / (limits ? limits.memoryGb * BYTES_PER_GB : totalmem())),
    };
  }

  forget(id: string): void {
    this.#samples.delete(id);
  }
}

/** From a group, if there is one: cheaper than scanning all processes of the machine. */
function findProcesses({ groups, leader }: RunRecord): ProcessEntry[] {
  if (groups.tracking === null) return findBeneath(new Set([leader.pid]), readProcesses());
  return listMembers(groups.tracking)
    .map(readProcess)
    .filter((entry) => entry !== undefined);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
