// Ends runs: first asks the command to exit, then kills all remaining processes, even hidden ones. Removes what containers
// leave behind: processes, control groups, folders.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import {
  findBeneath,
  findByVariable,
  isAlive,
  type Marked,
  type ProcessEntry,
  readCommandLine,
  readProcess,
  readProcesses,
  signalProcess,
} from '../../base/process/process-table.ts';
import { EngineError } from '../engine.ts';
import {
  type CgroupHome,
  forbidForks,
  listContainerGroups,
  listMembers,
  removeFolders,
  removeGroups,
} from './cgroups.ts';
import type { ContainerFolders, DiscardedFolder } from './container-folders.ts';
import { removeTree } from './pod-user.ts';
import { RUN_VARIABLE } from './run-start.ts';
import { findRun, type GivenPort, type RunRecord } from './runs.ts';

const RECHECK_MS = 10;
/** A device or a file system can delay the end of a killed process for a while. */
const KILL_LIMIT_MS = 10_000;

/** Identifies the processes of a run, or of all runs of a container. */
interface ProcessSearch {
  /** The run's file, as its processes know it; or the common prefix of the files of all runs. */
  name: string;
  /**
   * Readable records. A pod that runs as the platform's own user may have removed or damaged some.
   */
  records: readonly RunRecord[];
  /** Folders of control groups that hold nothing else, besides those in the records. */
  groups?: readonly string[];
  /** Processes seen before, which may not be found any more now that their leader is gone. */
  known?: readonly ProcessEntry[];
}

interface GracefulEnd {
  record: RunRecord;
  clock: Clock;
  /** Time to exit by itself, ms. */
  graceMs: number;
  /** The platform stops: the next one must ask again, and kill. */
  closing: AbortSignal;
}

/**
 * Asks the command to exit and waits until it has, or until `graceMs` are over.
 * @throws EngineError `unavailable` if `closing` comes first
 */
export async function requestExit(ending: GracefulEnd): Promise<void> {
  const { clock, closing, graceMs, record } = ending;
  const giveUpAt = clock.now() + graceMs;
  const main = await findMain(record, clock, giveUpAt);
  if (main) signalProcess(main, 'SIGTERM');
  while (isAlive(record.leader) && clock.now() < giveUpAt) {
    if (closing.aborted) throw new EngineError('unavailable', 'the platform ends');
    await sleep(clock, RECHECK_MS);
  }
}

/** Kills all of its processes; resolves when none is left. @throws EngineError `unavailable` */
export async function killAll(search: ProcessSearch, clock: Clock): Promise<void> {
  // A process that is exiting has no variables any more, but may still hold its files and devices.
  const seen = new Map((search.known ?? []).map((entry) => [entry.pid, entry]));
  const giveUpAt = clock.now() + KILL_LIMIT_MS;
  const counted = search.records.flatMap(({ groups }) => groups.pids ?? []);
  counted.push(...(search.groups ?? []));
  for (let round = 0; ; round++) {
    const { found, unknown } = findMarked(search);
    for (const entry of found) seen.set(entry.pid, entry);
    const members = [...seen.values()].filter(isStillThere);
    if (members.length + unknown.length === 0) return;
    if (clock.now() >= giveUpAt) {
      if (members.length === 0) return;
      const numbers = members.map(({ pid }) => pid).join(', ');
      throw new EngineError('unavailable', `processes do not end: ${numbers}`);
    }
    for (const member of members) signalProcess(member, 'SIGKILL');
    // Not before the first kill: a shell that cannot fork would exit with a code of its own.
    if (round === 0) for (const group of counted) forbidForks(group);
    await sleep(clock, RECHECK_MS);
  }
}

function isStillThere({ pid, startTicks }: ProcessEntry): boolean {
  const now = readProcess(pid);
  return now?.startTicks === startTicks && !now.isDead;
}

/** All live processes: those in its groups, those with its variable, and their descendants. */
export function findMembers(search: ProcessSearch): ProcessEntry[] {
  return findMarked(search).found;
}

function findMarked({ groups = [], name, records }: ProcessSearch): Marked {
  const processes = readProcesses();
  const folders = [...groups, ...records.flatMap((record) => record.groups.tracking ?? [])];
  const grouped = new Set([...new Set(folders)].flatMap(listMembers));
  const marked = findByVariable(RUN_VARIABLE, name, processes);
  const leaders = records.map(({ leader }) => leader).filter(isAlive);
  const roots = [...marked.found, ...leaders].map(({ pid }) => pid);
  const found = findBeneath(new Set([...grouped, ...roots]), processes);
  return { ...marked, found };
}

/** The command's own process, once the intermediate shell has been replaced. */
async function findMain(
  { leader }: RunRecord,
  clock: Clock,
  giveUpAt: number,
): Promise<ProcessEntry | undefined> {
  while (isAlive(leader)) {
    const shell = readCommandLine(leader.pid);
    const main = readProcesses().find(
      ({ isDead, parentPid, pid }) =>
        parentPid === leader.pid && !isDead && ![shell, ''].includes(readCommandLine(pid)),
    );
    if (main || clock.now() >= giveUpAt) return main && readProcess(main.pid);
    await sleep(clock, RECHECK_MS);
  }
  return undefined;
}

export interface RemainsOptions {
  folders: ContainerFolders;
  findCgroups: () => CgroupHome;
  /** Prefix of the names of the platform's groups. */
  groupPrefix: string;
  clock: Clock;
  log: Log;
  releasePorts: (ports: readonly GivenPort[]) => void;
}

/**
 * Removes what containers leave behind. Does not rely on the engine's records, which a pod that runs as the platform's own
 * user can damage.
 */
export class Remains {
  readonly #options: RemainsOptions;
  /** The last seen run of each pod, in case its record is lost. */
  readonly #lastRuns = new Map<string, RunRecord>();

  constructor(options: RemainsOptions) {
    this.#options = options;
  }

  noteRun(id: string, record: RunRecord): void {
    this.#lastRuns.set(id, record);
  }

  /**
   * Ends everything that the pod's removed containers still run, and frees their space. @throws
   * EngineError
   */
  async clear(id: string): Promise<void> {
    const { folders } = this.#options;
    const discarded = await folders.listDiscarded(id);
    const last = this.#lastRuns.get(id);
    await this.#end({ id, name: folders.homeOf(id), last }, discarded);
    this.#lastRuns.delete(id);
    for (const folder of discarded) await this.#removeFolder(folder);
  }

  /**
   * Removes the unfinished work of a dead platform process, and remains that an earlier call could
   * not remove.
   */
  async sweep(): Promise<void> {
    const { folders, log } = this.#options;
    await folders.sweep();
    for (const folder of await folders.listDiscarded()) {
      const { generation, home, id } = folder;
      await this.#end({ id, generation, name: `${home}/`, last: undefined }, [folder])
        .then(() => this.#removeFolder(folder))
        .catch((error: unknown) => {
          log.warn({ err: error, ...folder }, 'removed container still runs, retrying');
        });
    }
  }

  async #end(
    { generation, id, last, name }: ContainerSearch,
    discarded: readonly DiscardedFolder[],
  ): Promise<void> {
    const { clock, findCgroups, groupPrefix, releasePorts } = this.#options;
    const records = last ? [last] : [];
    for (const { kind, path } of discarded) {
      const record = kind === 'record' ? (await findRun(path))?.record : undefined;
      if (record) records.push(record);
    }
    const groups = listContainerGroups(findCgroups(), groupPrefix, { id, generation });
    await killAll({ name, records, groups }, clock);
    for (const record of records) {
      await removeGroups(record.groups, clock);
      releasePorts(record.ports);
    }
    await removeFolders(groups, clock);
  }

  /** The next sweep retries a folder that cannot be deleted now. */
  async #removeFolder({ kind, path }: DiscardedFolder): Promise<void> {
    try {
      await (kind === 'disk' ? this.#options.folders.removeDisk(path) : removeTree(path));
    } catch (error) {
      this.#options.log.warn({ err: error, path }, 'deleting removed container failed, retrying');
    }
  }
}

interface ContainerSearch {
  id: string;
  /** Undefined: all generations. */
  generation?: number;
  /** Prefix of the run files of its processes. */
  name: string;
  last: RunRecord | undefined;
}
