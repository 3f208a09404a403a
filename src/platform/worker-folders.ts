// Where the workers in pods keep what they have finished and not delivered: beside the pods' own disks,
// which go with them. A folder for each endpoint, so that a later worker delivers what an earlier one left.
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../base/log.ts';
import { type PodUser, provideOwn, provideParent, removeOwn } from '../engine/process/pod-user.ts';
import type { LeaseRef } from '../wire/link/worker-link.ts';
import { readSurvivors } from '../worker/outbox/outbox-entries.ts';

export interface WorkerFoldersOptions {
  path: string;
  /** The user that workers run as. Default: the platform's. */
  user?: PodUser | undefined;
  log: Log;
}

/** Of what there still is. */
export interface FolderUse {
  endpoints: ReadonlySet<string>;
  pods: ReadonlySet<string>;
}

export class WorkerFolders {
  readonly #options: WorkerFoldersOptions;
  /** Could not be removed: that is logged once. */
  readonly #stuck = new Set<string>();
  #tidying: Promise<void> = Promise.resolve();

  constructor(options: WorkerFoldersOptions) {
    this.#options = options;
  }

  /** For all workers of the endpoint together. */
  locate(endpointId: string): string {
    return join(this.#options.path, endpointId);
  }

  /** Makes it, so that workers can write to it. */
  async provide(endpointId: string): Promise<string> {
    const { path, user } = this.#options;
    await provideParent(path, user);
    const folder = this.locate(endpointId);
    await provideOwn(folder, user);
    return folder;
  }

  /** Attempts whose outcome the pod's workers have not delivered. */
  async readLeft(endpointId: string, podId: string): Promise<LeaseRef[]> {
    const folder = this.locate(endpointId);
    const own = (await list(folder)).filter((name) => isOfPod(name, podId));
    const left: LeaseRef[] = [];
    // One after the other: the sizes of all together are not bounded.
    for (const name of own) left.push(...(await readSurvivors(join(folder, name))));
    return left;
  }

  /** Removes what is of use to nobody any more, one call after the other. Never rejects. */
  tidy(readUse: () => FolderUse): Promise<void> {
    this.#tidying = this.#tidying
      .then(() => this.#tidy(readUse))
      .catch((error: unknown) => {
        this.#options.log.warn({ err: error }, 'removing folders of old workers failed');
      });
    return this.#tidying;
  }

  async #tidy(readUse: () => FolderUse): Promise<void> {
    for (const endpointId of await list(this.#options.path)) {
      const folder = this.locate(endpointId);
      if (!readUse().endpoints.has(endpointId)) await this.#tryOn(folder, () => removeOwn(folder));
      else await this.#tryOn(folder, () => this.#tidyEndpoint(folder, readUse));
    }
  }

  async #tidyEndpoint(folder: string, readUse: () => FolderUse): Promise<void> {
    for (const worker of await list(folder)) {
      if ([...readUse().pods].some((podId) => isOfPod(worker, podId))) continue;
      const own = join(folder, worker);
      const left = await readSurvivors(own);
      if (left.length === 0) await this.#tryOn(own, () => removeOwn(own));
    }
  }

  /** A folder that fails holds up no other, and is logged once. */
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

/** A worker of a pod has its id, with `-0`, `-1`, … where the pod has several. */
function isOfPod(workerId: string, podId: string): boolean {
  return workerId === podId || workerId.startsWith(`${podId}-`);
}

async function list(folder: string): Promise<string[]> {
  return existsSync(folder) ? readdir(folder) : [];
}
