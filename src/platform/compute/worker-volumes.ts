// Removes the state volumes of deleted endpoints. Workers clean up inside a volume.
import type { Log } from '../../base/log.ts';
import type { StateVolumes } from '../../engine/engine.ts';
import type { FolderUse } from './worker-folders.ts';

export interface WorkerVolumesOptions {
  volumes: StateVolumes;
  log: Log;
}

export class WorkerVolumes {
  readonly #options: WorkerVolumesOptions;
  /** Endpoints whose volumes could not be removed, which is logged once. */
  readonly #stuck = new Set<string>();
  #tidying: Promise<void> = Promise.resolve();

  constructor(options: WorkerVolumesOptions) {
    this.#options = options;
  }

  /** Calls do not overlap. Never rejects. */
  tidy(readUse: () => Pick<FolderUse, 'endpoints'>): Promise<void> {
    this.#tidying = this.#tidying
      .then(() => this.#tidy(readUse))
      .catch((error: unknown) => {
        this.#options.log.warn({ err: error }, 'state volumes cannot be listed');
      });
    return this.#tidying;
  }

  async #tidy(readUse: () => Pick<FolderUse, 'endpoints'>): Promise<void> {
    for (const endpointId of await this.#options.volumes.listEndpoints()) {
      if (!readUse().endpoints.has(endpointId)) await this.#remove(endpointId);
    }
  }

  async #remove(endpoint: string): Promise<void> {
    const { log, volumes } = this.#options;
    try {
      await volumes.remove(endpoint);
      this.#stuck.delete(endpoint);
    } catch (error) {
      if (this.#stuck.has(endpoint)) return;
      this.#stuck.add(endpoint);
      log.warn({ endpoint, err: error }, 'state volume cannot be removed');
    }
  }
}
