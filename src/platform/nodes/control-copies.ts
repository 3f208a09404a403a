// Keeps endpoints, templates and keys of this node equal to those that the leader has written: reads them again when
// the leader or its control number has changed.
import type { Log } from '../../base/log.ts';
import type { ClusterView } from '../../cluster/cluster-view.ts';

export interface ControlCopiesOptions {
  log: Log;
  /** Each reads its records again. */
  reloads: readonly (() => Promise<void>)[];
}

export class ControlCopies {
  readonly #options: ControlCopiesOptions;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  /** What the copies are at least as new as. */
  #seen = '';

  constructor(options: ControlCopiesOptions) {
    this.#options = options;
  }

  /** Reads everything that was committed before the call. Calls share reads. */
  reload(): Promise<void> {
    if (!this.#running) {
      this.#running = this.#readAll().finally(() => {
        this.#running = undefined;
      });
      return this.#running;
    }
    // The running read may have begun before the last commit.
    this.#next ??= this.#running
      .catch(() => {})
      .then(() => {
        this.#next = undefined;
        return this.reload();
      });
    return this.#next;
  }

  /** Reloads if the leader has written since the last reload. Never rejects. @returns whether it did */
  async follow(view: ClusterView): Promise<boolean> {
    const seen = describeControl(view);
    if (seen === this.#seen) return false;
    const before = this.#seen;
    this.#seen = seen;
    try {
      await this.reload();
      return true;
    } catch (error) {
      // Unless a later view has been followed meanwhile.
      if (this.#seen === seen) this.#seen = before;
      this.#options.log.warn({ err: error }, 'reading endpoints and keys failed, retrying');
      return false;
    }
  }

  async #readAll(): Promise<void> {
    await Promise.all(this.#options.reloads.map((reload) => reload()));
  }
}

/** Who leads, since when, and how often it has written. */
function describeControl({ nodes, shards }: ClusterView): string {
  const control = shards.find(({ id }) => id === 0);
  const leader = nodes.find(({ id }) => id === control?.owner);
  return `${control?.owner} ${control?.epoch} ${leader?.controlNumber}`;
}
