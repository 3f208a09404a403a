// Removes the remains of a deleted endpoint in repeatable steps: ends its workers, removes its
// jobs, finally its row. After a crash, the next start continues.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ENDING, logLevelOf, type Store } from '../../store/store.ts';
import type { Endpoints } from './endpoints.ts';

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
