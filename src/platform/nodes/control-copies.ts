// Keeps endpoints, templates and keys of this node equal to those that the leader has written: reads them again when
// the leader or its control number has changed.
import { type ResumableClock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ClusterView } from '../../cluster/cluster-view.ts';

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
