// Ends what containers have left when they are removed: processes, control groups, folders. It does not
// depend on the engine's records, because a pod without a user of its own can damage them.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type CgroupHome, listContainerGroups, removeFolders, removeGroups } from './cgroups.ts';
import type { ContainerFolders, DiscardedFolder } from './containers/container-folders.ts';
import { removeOwn } from './pod-user.ts';
import type { GivenPort } from './port-pool.ts';
import { removeTree } from './remove-tree.ts';
import { killAll } from './run-end.ts';
import type { RunRecord } from './run-record.ts';
import { findRun } from './runs.ts';

export interface RemainsOptions {
  folders: ContainerFolders;
  cgroups: CgroupHome;
  /** In front of the names of the platform's groups. */
  groupPrefix: string;
  clock: Clock;
  log: Log;
  /** Ports of runs that have ended. */
  releasePorts: (ports: readonly GivenPort[]) => void;
}

export class Remains {
  readonly #options: RemainsOptions;
  /** By pod, of the last run that was seen, for the case that its record is lost. */
  readonly #lastRuns = new Map<string, RunRecord>();

  constructor(options: RemainsOptions) {
    this.#options = options;
  }

  noteRun(id: string, record: RunRecord): void {
    this.#lastRuns.set(id, record);
  }

  /** Ends all that the pod's removed containers still run, and gives their space back. @throws EngineError */
  async clear(id: string): Promise<void> {
    const { folders } = this.#options;
    const discarded = await folders.listDiscarded(id);
    const last = this.#lastRuns.get(id);
    await this.#end({ id, name: folders.homeOf(id), last }, discarded);
    this.#lastRuns.delete(id);
    for (const folder of discarded) await this.#removeFolder(folder);
  }

  /** What a platform that died has left by halves, and what could not be removed before. */
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
    { generation, id, last, name }: ContainerTraces,
    discarded: readonly DiscardedFolder[],
  ): Promise<void> {
    const { cgroups, clock, groupPrefix, releasePorts } = this.#options;
    const records = last ? [last] : [];
    for (const { kind, path } of discarded) {
      const record = kind === 'record' ? (await findRun(path))?.record : undefined;
      if (record) records.push(record);
    }
    const groups = listContainerGroups(cgroups, groupPrefix, { id, generation });
    await killAll({ name, records, groups }, clock);
    for (const record of records) {
      await removeGroups(record.groups, clock);
      releasePorts(record.ports);
    }
    await removeFolders(groups, clock);
  }

  /** What cannot be deleted now is tried again with the next sweep. */
  async #removeFolder({ kind, path }: DiscardedFolder): Promise<void> {
    try {
      await (kind === 'disk' ? removeOwn(path) : removeTree(path));
    } catch (error) {
      this.#options.log.warn({ err: error, path }, 'deleting removed container failed, retrying');
    }
  }
}

interface ContainerTraces {
  id: string;
  /** Undefined: all of them. */
  generation?: number;
  /** What the run files of its processes begin with. */
  name: string;
  last: RunRecord | undefined;
}
