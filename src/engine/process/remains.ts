// Removes what containers leave behind: processes, control groups, folders. Does not rely on the
// engine's records, which a pod that runs as the platform's own user can damage.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type CgroupHome, listContainerGroups, removeFolders, removeGroups } from './cgroups.ts';
import type { ContainerFolders, DiscardedFolder } from './container-folders.ts';
import { removeTree } from './folders.ts';
import type { GivenPort } from './port-pool.ts';
import { killAll } from './run-end.ts';
import { findRun, type RunRecord } from './runs.ts';

export interface RemainsOptions {
  folders: ContainerFolders;
  findCgroups: () => CgroupHome;
  /** Prefix of the names of the platform's groups. */
  groupPrefix: string;
  clock: Clock;
  log: Log;
  /** Ports of ended runs. */
  releasePorts: (ports: readonly GivenPort[]) => void;
}

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
