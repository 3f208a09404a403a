// The store of endpoints, templates and keys as a node sees it: the leader writes it, all other nodes only read it.
import {
  type Reader,
  type Store,
  StoreUnavailableError,
  type Transaction,
  type WriteOptions,
} from '../../store/store.ts';

export interface ControlStoreOptions {
  /** Reads the rows that the leader has committed. */
  reader: Store;
  /** Called after each write, before its caller gets the answer. Never rejects. */
  announce: () => Promise<void>;
}

export class ControlStore implements Store {
  readonly #options: ControlStoreOptions;
  /** Only on the leader. */
  #owned: Store | undefined;
  /** Resolves when the callers of all writes before have their answers. */
  #answered: Promise<void> = Promise.resolve();

  constructor(options: ControlStoreOptions) {
    this.#options = options;
  }

  /** This node is the leader from now on; undefined: no longer. */
  own(store: Store | undefined): void {
    this.#owned = store;
  }

  /**
   * Writes are answered in their order, however long their announcements take: callers keep copies in memory, and an
   * older answer must not replace a newer one. A key that was changed and then revoked would become valid again.
   */
  async write<T>(operation: (tx: Transaction) => T, options?: WriteOptions): Promise<T> {
    const owned = this.#requireOwned();
    const before = this.#answered;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#answered = promise;
    try {
      const result = await owned.write(operation, options);
      await this.#options.announce();
      return result;
    } finally {
      await before;
      // After the caller has used the answer.
      setImmediate(resolve);
    }
  }

  read<T>(operation: (tx: Reader) => T): Promise<T> {
    return (this.#owned ?? this.#options.reader).read(operation);
  }

  reclaim(pages: number): Promise<boolean> {
    return this.#owned?.reclaim(pages) ?? Promise.resolve(false);
  }

  /** For records that only the leader reads: the other nodes are not told of its writes. */
  get unannounced(): Store {
    return {
      write: async (operation, options) => this.#requireOwned().write(operation, options),
      read: (operation) => this.read(operation),
      reclaim: (pages) => this.reclaim(pages),
      close: async () => {},
    };
  }

  /** @throws StoreUnavailableError */
  #requireOwned(): Store {
    if (this.#owned) return this.#owned;
    throw new StoreUnavailableError('another node is the leader; try again');
  }

  /** The owner of each store closes it. */
  async close(): Promise<void> {}
}
