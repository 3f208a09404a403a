// The folders in which workers in pods keep undelivered outcomes, separate from the pods' own
// disks, which are removed with the pods. One folder for each endpoint, so that a later worker
// delivers the outcomes that an earlier one left.
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import {
  type PodUser,
  provideParent,
  providePodFolder,
  removeAsOwner,
} from '../../engine/process/pod-user.ts';
import type { LeaseRef } from '../../wire/link/worker-link.ts';
import { readForeignIdentity } from '../../worker/outbox/folder-owner.ts';
import { readUndelivered } from '../../worker/outbox/outbox-entries.ts';

export interface WorkerFoldersOptions {
  path: string;
  /** User that workers run as. Default: the platform's. */
  user?: PodUser | undefined;
  log: Log;
}

/** Endpoints and pods that still exist. */
export interface FolderUse {
  endpoints: ReadonlySet<string>;
  /** The endpoint of each worker's pod, by the pod's ID. */
  pods: ReadonlyMap<string, string>;
}

export class WorkerFolders {
  readonly #options: WorkerFoldersOptions;
  /** Folders that could not be removed, which is logged once. */
  readonly #stuck = new Set<string>();
  #tidying: Promise<void> = Promise.resolve();

  constructor(options: WorkerFoldersOptions) {
    this.#options = options;
  }

  /** One folder for all workers of the endpoint. */
  locate(endpointId: string): string {
    return join(this.#options.path, endpointId);
  }

  /** Creates the folder so that workers can write to it. */
  async provide(endpointId: string): Promise<string> {
    const { path, user } = this.#options;
    await provideParent(path, user);
    const folder = this.locate(endpointId);
    await providePodFolder(folder, user);
    return folder;
  }

  /** Attempts whose outcome the worker has not delivered. */
  readLeft(endpointId: string, workerId: string): Promise<LeaseRef[]> {
    return readUndelivered(join(this.locate(endpointId), workerId), this.#options.log);
  }

  /** Removes unused folders; calls do not overlap. Never rejects. */
  tidy(readUse: () => FolderUse | Promise<FolderUse>): Promise<void> {
    this.#tidying = this.#tidying
      .then(() => this.#tidy(readUse))
      .catch((error: unknown) => {
        this.#options.log.warn({ err: error }, 'removing folders of old workers failed');
      });
    return this.#tidying;
  }

  async #tidy(readUse: () => FolderUse | Promise<FolderUse>): Promise<void> {
    for (const endpointId of await list(this.#options.path)) {
      const folder = this.locate(endpointId);
      const isKnown = (await readUse()).endpoints.has(endpointId);
      if (!isKnown) await this.#tryOn(folder, () => removeAsOwner(folder));
      else await this.#tryOn(folder, () => this.#tidyEndpoint(endpointId, readUse));
    }
  }

  async #tidyEndpoint(
    endpointId: string,
    readUse: () => FolderUse | Promise<FolderUse>,
  ): Promise<void> {
    const folder = this.locate(endpointId);
    for (const worker of await list(folder)) {
      // Not a worker's: versions of the handler, for the next workers.
      if (worker.startsWith('.')) continue;
      const own = join(folder, worker);
      const podId = (await readForeignIdentity(own))?.podId;
      const left = await readUndelivered(own, this.#options.log);
      // Read last, so that no worker can have started meanwhile.
      const { pods } = await readUse();
      // A folder that names no pod is new: any pod of the endpoint may use it.
      const isUsed =
        podId === undefined ? [...pods.values()].includes(endpointId) : pods.has(podId);
      if (!isUsed && left.length === 0) await this.#tryOn(own, () => removeAsOwner(own));
    }
  }

  /** A failing folder does not block the others, and is logged once. */
  async #tryOn(folder: string, act: () => Promise<void>): Promise<void> {
    try {
      await act();
      this.#stuck.delete(folder);
    } catch (error) {
      if (this.#stuck.has(folder)) return;
      this.#stuck.add(folder);
      this.#options.log.warn({ folder, err: error }, 'worker folder cannot be removed');
    }
  }
}

async function list(folder: string): Promise<string[]> {
  return existsSync(folder) ? readdir(folder) : [];
}
