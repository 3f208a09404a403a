// The store of endpoints, templates and keys as a node sees it: the leader writes it and tells the other nodes, which read
// it again.
import { setTimeout as pause } from 'node:timers/promises';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import { type ResumableClock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ClusterView } from '../../cluster/cluster-rows.ts';
import type { Membership } from '../../cluster/membership.ts';
import {
  type Reader,
  type Store,
  StoreUnavailableError,
  type Transaction,
  type WriteOptions,
} from '../../store/store.ts';
import { askNode, NODE_CALLS } from './node-calls.ts';

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

/** Longest wait for other nodes to learn what the leader wrote, ms; later they learn it by themselves. */
const ANNOUNCE_MS = 500;

export interface ControlNewsOptions {
  membership: Pick<Membership, 'id' | 'noteControl' | 'view'>;
  client: NodeClient;
}

/** Tells the other nodes that the leader has written. */
export class ControlNews {
  readonly #options: ControlNewsOptions;
  #number = 0;
  /** The last number that the database has. */
  #announced = 0;
  #announcing = 0;

  constructor(options: ControlNewsOptions) {
    this.#options = options;
  }

  /** Resolves when they know it, or when they will learn it by themselves. Never rejects. */
  async announce(): Promise<void> {
    const { client, membership } = this.#options;
    const written = this.#writeNumber();
    const others = membership.view.nodes.filter(({ id, isLive }) => isLive && id !== membership.id);
    const told = others.map(async ({ url }) => {
      await written;
      await askNode(client, url, NODE_CALLS.changed, null).catch(() => {});
    });
    await Promise.race([Promise.all([written, ...told]), pause(ANNOUNCE_MS)]);
  }

  /** After a failure: the database has no number of the last write. */
  repeat(): void {
    if (this.#announced < this.#number && this.#announcing === 0) void this.announce();
  }

  async #writeNumber(): Promise<void> {
    const number = ++this.#number;
    this.#announcing += 1;
    try {
      await this.#options.membership.noteControl(number);
      this.#announced = Math.max(this.#announced, number);
    } catch {
      // The next view of the cluster repeats it.
    } finally {
      this.#announcing -= 1;
    }
  }
}

export interface ControlCopiesOptions {
  clock: ResumableClock;
  log: Log;
  /** Each reads its records again. */
  reloads: readonly (() => Promise<void>)[];
}

/** After a read, the next one waits this many times as long as the read took. */
const REST_PER_READ = 4;
/** At most, ms. */
const MAX_REST_MS = 500;

/**
 * Keeps endpoints, templates and keys of this node equal to those that the leader has written: reads them again when
 * the leader or its control number has changed.
 */
export class ControlCopies {
  readonly #options: ControlCopiesOptions;
  #reading: Promise<void> | undefined;
  /** A read that has not begun. */
  #next: Promise<void> | undefined;
  #restsUntil = Number.NEGATIVE_INFINITY;
  /** The copies are at least as new as this once `#following` has ended. */
  #seen = '';
  #following: Promise<boolean> | undefined;

  constructor(options: ControlCopiesOptions) {
    this.#options = options;
  }

  /**
   * Reads everything that was committed before the call. Calls share reads. Each read is of all records, so there are
   * pauses: a user who changes keys all the time must not keep every node busy.
   */
  reload(): Promise<void> {
    this.#next ??= this.#readNext();
    return this.#next;
  }

  /**
   * Reloads if the leader has written since the last reload. Calls with the same view share the reload and all wait for
   * its end. Never rejects. @returns whether a reload has ended well
   */
  async follow(view: ClusterView): Promise<boolean> {
    const seen = describeControl(view);
    if (seen !== this.#seen) {
      this.#seen = seen;
      this.#following = this.#reloadFor(seen);
    }
    return (await this.#following) ?? false;
  }

  async #reloadFor(seen: string): Promise<boolean> {
    try {
      await this.reload();
      return true;
    } catch (error) {
      // Unless a later view has been followed meanwhile.
      if (this.#seen === seen) this.#seen = '';
      this.#options.log.warn({ err: error }, 'reading endpoints and keys failed, retrying');
      return false;
    } finally {
      if (this.#seen === seen) this.#following = undefined;
    }
  }

  async #readNext(): Promise<void> {
    const { clock } = this.#options;
    // The running read may have begun before the last commit.
    await this.#reading?.catch(() => {});
    const restMs = this.#restsUntil - clock.monotonic();
    if (restMs > 0) await sleep(clock, restMs);
    this.#next = undefined;
    this.#reading = this.#readAll();
    await this.#reading;
  }

  async #readAll(): Promise<void> {
    const { clock, reloads } = this.#options;
    const startedAt = clock.monotonic();
    try {
      await Promise.all(reloads.map((reload) => reload()));
    } finally {
      const endedAt = clock.monotonic();
      const restMs = Math.min(MAX_REST_MS, (endedAt - startedAt) * REST_PER_READ);
      this.#restsUntil = endedAt + restMs;
    }
  }
}

/** Who leads, since when, and how often it has written. */
function describeControl({ nodes, shards }: ClusterView): string {
  const control = shards.find(({ id }) => id === 0);
  const leader = nodes.find(({ id }) => id === control?.owner);
  return `${control?.owner} ${control?.epoch} ${leader?.controlNumber}`;
}
