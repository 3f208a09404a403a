// What follows when an endpoint was deleted, in steps that can all be repeated: its workers are ended,
// its jobs removed, at last its row. What a killed platform left undone is taken up at the next start.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ENDING, logLevelOf, type Store } from '../../store/store.ts';
import type { Endpoints } from './endpoints.ts';

/** After a step that failed. */
const RETRY_MS = 1_000;

/** What is queued at endpoints. */
export interface EndpointJobs {
  /** Nobody finds them from this call on; resolves when they are removed, false if it broke off. */
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
  /** Ends the workers that the endpoint has by now. Default: they come from elsewhere. */
  endWorkers?: (endpointId: string) => Promise<void>;
}

export class EndpointDeletion {
  readonly #options: EndpointDeletionOptions;
  readonly #closing = new AbortController();
  /** By id: what is under way; never rejects. */
  readonly #underWay = new Map<string, Promise<void>>();
  readonly #stopListening: () => void;

  constructor(options: EndpointDeletionOptions) {
    this.#options = options;
    this.#stopListening = options.endpoints.onChange(({ id, kind }) => {
      if (kind === 'deleted') this.#begin(id);
    });
  }

  /** Takes up what an earlier run left: from here on nobody finds any of it. */
  async start(): Promise<void> {
    const stored = await this.#options.store.read((tx) => tx.endpoints());
    for (const { deleted, id } of stored) if (deleted) this.#begin(id);
  }

  /** Resolves when nothing is left of the endpoint, if it was deleted: its id is free. */
  async settled(id: string): Promise<void> {
    await this.#underWay.get(id);
  }

  /** Breaks off; the store is left to its owner. */
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

  /** @returns false if it broke off */
  async #removeAll(id: string): Promise<boolean> {
    const { endWorkers = async () => {}, jobs, store } = this.#options;
    // Before anything is waited for: whoever asks next must not find it.
    const dropped = jobs.drop(id, this.#closing.signal);
    await Promise.all([dropped, endWorkers(id)]);
    if (!(await dropped)) return false;
    // Those that were on their way when it was deleted.
    await endWorkers(id);
    await store.write((tx) => tx.removeEndpoint(id), ENDING);
    jobs.forget(id);
    return true;
  }
}
