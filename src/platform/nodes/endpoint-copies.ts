// Keeps the endpoints of a shard in the store of the shard, where its queue finds them: the control plane has the
// originals. Shard 0 is the control plane's own.
import { isDeepStrictEqual } from 'node:util';
import type { Log } from '../../base/log.ts';
import type { LiveEndpoint } from '../../control/endpoints/endpoint-records.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { ENDING, type Store } from '../../store/store.ts';

export interface EndpointCopiesOptions {
  endpoints: Pick<Endpoints, 'all' | 'find' | 'onChange'>;
  log: Log;
}

export class EndpointCopies {
  readonly #options: EndpointCopiesOptions;
  /** Of the shards that this node serves or opens. */
  readonly #stores = new Map<number, Store>();
  readonly #writing = new Set<Promise<void>>();
  /** Endpoints whose last change could not be written. */
  readonly #failed = new Set<string>();

  constructor(options: EndpointCopiesOptions) {
    this.#options = options;
    options.endpoints.onChange(({ id, kind }) => {
      if (kind === 'put') this.#copy(id);
    });
  }

  /**
   * Brings the rows of the shard up to date; each change is written from now on.
   * @returns endpoints that no longer exist
   */
  async add(shard: number, store: Store): Promise<string[]> {
    if (shard === 0) return [];
    // First: what changes during the read must not be missed.
    this.#stores.set(shard, store);
    const stored = new Map(
      (await store.read((tx) => tx.endpoints())).map((endpoint) => [endpoint.id, endpoint]),
    );
    // After the read: an endpoint of the shard that is new since then must not look deleted.
    const all = this.#options.endpoints.all().filter((endpoint) => endpoint.shard === shard);
    const isSame = (endpoint: LiveEndpoint) => {
      const known = stored.get(endpoint.id);
      if (!known || known.deleted) return false;
      const { createdAt, deployment, id, settings, userId } = known;
      return isDeepStrictEqual({ createdAt, deployment, id, settings, shard, userId }, endpoint);
    };
    const changed = all.filter((endpoint) => !isSame(endpoint));
    if (changed.length > 0) {
      await store.write((tx) => {
        for (const endpoint of changed) tx.putEndpoint({ ...endpoint, deleted: false });
      }, ENDING);
    }
    const ids = new Set(all.map(({ id }) => id));
    return [...stored.keys()].filter((id) => !ids.has(id));
  }

  /** The store of the shard is about to close. */
  remove(shard: number): void {
    this.#stores.delete(shard);
  }

  /** Resolves when all changes so far are written, or have failed. */
  async settled(): Promise<void> {
    await Promise.all(this.#writing);
  }

  /** Writes what could not be written. */
  repeat(): void {
    for (const id of this.#failed) this.#copy(id);
  }

  #copy(id: string): void {
    const { endpoints, log } = this.#options;
    this.#failed.delete(id);
    const endpoint = endpoints.find(id);
    const store = endpoint && this.#stores.get(endpoint.shard);
    if (!store) return;
    const put = { ...endpoint, deleted: false };
    const writing = store
      .write((tx) => tx.putEndpoint(put), ENDING)
      .catch((error: unknown) => {
        this.#failed.add(id);
        log.warn({ err: error, endpoint: id }, 'writing an endpoint to its shard failed, retrying');
      });
    this.#writing.add(writing);
    void writing.finally(() => this.#writing.delete(writing));
  }
}
