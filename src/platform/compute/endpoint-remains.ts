// Removes what deleted endpoints leave: their jobs and workers, and the state of workers in folders and volumes.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Pods } from '../../control/pods/pods.ts';
import type { Versions } from '../../control/versions/versions.ts';
import type { StateVolumes } from '../../engine/engine.ts';
import { ENDING, logLevelOf, type Store } from '../../store/store.ts';
import type { FolderUse, WorkerFolders } from './worker-folders.ts';

export interface EndpointRemainsOptions {
  store: Store;
  clock: Clock;
  log: Log;
  endpoints: Endpoints;
  versions: Pick<Versions, 'sweep'>;
  /** Undefined: there are no workers in pods. */
  pods: Pick<Pods, 'all' | 'endWorker' | 'ofEndpoint'> | undefined;
  workerFolders: WorkerFolders | undefined;
  workerVolumes: WorkerVolumes | undefined;
}

export class EndpointRemains {
  readonly #options: EndpointRemainsOptions;

  constructor(options: EndpointRemainsOptions) {
    this.#options = options;
  }

  /**
   * Begins to remove the remains of deleted endpoints, which nobody can find from now on. `lost` interrupts it, as
   * `close` does.
   */
  async startDeletion(ofQueue: EndpointJobs, lost?: AbortSignal): Promise<EndpointDeletion> {
    const { clock, endpoints, log, pods, store, versions } = this.#options;
    const endWorkers = async (endpointId: string) => {
      await Promise.all(pods?.ofEndpoint(endpointId).map(({ id }) => pods.endWorker(id)) ?? []);
    };
    const shared = { store, clock, log, endpoints };
    const forget = (endpointId: string) => {
      ofQueue.forget(endpointId);
      void versions.sweep();
      void this.tidyState();
    };
    const drop: EndpointJobs['drop'] = (id, signal) => ofQueue.drop(id, signal);
    const jobs = { drop, forget };
    const deletion = new EndpointDeletion({ ...shared, jobs, endWorkers });
    lost?.addEventListener('abort', () => void deletion.close(), { once: true });
    try {
      await deletion.start();
    } catch (error) {
      await deletion.close();
      throw error;
    }
    void versions.sweep();
    return deletion;
  }

  /** The endpoints and worker pods that exist. */
  listUse(): FolderUse {
    const { endpoints, pods } = this.#options;
    const known = endpoints.all().map(({ id }) => id);
    const ofWorkers = new Map<string, string>();
    for (const { endpointId, id } of pods?.all() ?? [])
      if (endpointId !== null) ofWorkers.set(id, endpointId);
    return { endpoints: new Set([...known, ...ofWorkers.values()]), pods: ofWorkers };
  }

  /** Removes state volumes of deleted endpoints, if the engine has volumes. */
  async tidyVolumes(): Promise<void> {
    await this.#options.workerVolumes?.tidy(() => this.listUse());
  }

  /** Like `tidyVolumes`, and the workers' folders on this machine. */
  async tidyState(): Promise<void> {
    await this.#options.workerFolders?.tidy(() => this.listUse());
    await this.tidyVolumes();
  }
}

export interface WorkerVolumesOptions {
  volumes: StateVolumes;
  log: Log;
}

/** Removes the state volumes of deleted endpoints. Workers clean up inside a volume. */
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

/** Wait after a failed step, ms. */
const RETRY_MS = 1_000;

export interface EndpointJobs {
  /**
   * Hides the endpoint's jobs at once; resolves when they are removed, false if it was interrupted.
   */
  drop(endpointId: string, signal: AbortSignal): Promise<boolean>;
  /** Nothing is left of the endpoint. */
  forget(endpointId: string): void;
}

export interface EndpointDeletionOptions {
  store: Store;
  clock: Clock;
  log: Log;
  endpoints: Endpoints;
  jobs: EndpointJobs;
  /** Ends the endpoint's current workers. Default: the platform has not started any. */
  endWorkers?: (endpointId: string) => Promise<void>;
}

/**
 * Removes a deleted endpoint in repeatable steps: ends its workers, removes its jobs, finally its row. After a crash, the
 * next start continues.
 */
export class EndpointDeletion {
  readonly #options: EndpointDeletionOptions;
  readonly #closing = new AbortController();
  /** Running deletions by ID; they never reject. */
  readonly #underWay = new Map<string, Promise<void>>();
  readonly #stopListening: () => void;

  constructor(options: EndpointDeletionOptions) {
    this.#options = options;
    this.#stopListening = options.endpoints.onChange(({ id, kind }) => {
      if (kind === 'deleted') this.#begin(id);
    });
  }

  /** Continues the deletions of an earlier run, whose endpoints are hidden from now on. */
  async start(): Promise<void> {
    const stored = await this.#options.store.read((tx) => tx.endpoints());
    for (const { deleted, id } of stored) if (deleted) this.#begin(id);
  }

  /** Resolves when nothing is left of a deleted endpoint, so that its ID is free. */
  async settled(id: string): Promise<void> {
    await this.#underWay.get(id);
  }

  /** Interrupts deletions; does not close the store. */
  async close(): Promise<void> {
    this.#stopListening();
    this.#closing.abort();
    await Promise.all(this.#underWay.values());
  }

  #begin(id: string): void {
    if (this.#underWay.has(id)) return;
    const deletion = this.#run(id).finally(() => this.#underWay.delete(id));
    this.#underWay.set(id, deletion);
  }

  async #run(id: string): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        if (await this.#removeAll(id)) log.info({ endpoint: id }, 'deleted endpoint removed');
        return;
      } catch (error) {
        log[logLevelOf(error)](
          { err: error, endpoint: id },
          'removing deleted endpoint failed, retrying',
        );
        await sleep(clock, RETRY_MS, signal);
      }
    }
  }

  /** @returns false if it was interrupted */
  async #removeAll(id: string): Promise<boolean> {
    const { endWorkers = async () => {}, jobs, store } = this.#options;
    // Before the first await, so that the next call cannot find the endpoint.
    const dropped = jobs.drop(id, this.#closing.signal);
    await Promise.all([dropped, endWorkers(id)]);
    if (!(await dropped)) return false;
    // Workers that were being started during the deletion.
    await endWorkers(id);
    await store.write((tx) => tx.removeEndpoint(id), ENDING);
    jobs.forget(id);
    return true;
  }
}
