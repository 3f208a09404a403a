// What the engine is told of network volumes: that they have grown, and that they are deleted.
import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { NetworkVolumes } from '../../engine/engine.ts';
import { ENDING, type Store, type StoredResource, type Transaction } from '../../store/store.ts';

const KIND = 'removedVolume';
/** Removed from all machines that could be called. */
const GONE_KIND = 'goneVolume';
/** How long, and for how many volumes, a machine may be away before its copies stay. */
const KEEP_GONE_MS = 90 * 86_400_000;
const MAX_GONE = 10_000;
/** Removals of one pass. */
const PAGE = 100;
/** Interval of the attempts while removals are left, ms. */
const RETRY_MS = 15_000;

const removal = z.object({ source: z.string() });

interface RemovedVolume {
  id: string;
  userId: string;
  /** The engine's name. */
  source: string;
}

/** In the commit that deletes the volume. */
export function noteRemoval(tx: Transaction, { id, source, userId }: RemovedVolume): void {
  const body = JSON.stringify({ source });
  tx.putResource({ kind: KIND, id, userId, parent: '', position: 0, body });
}

export interface VolumeRemovalsOptions {
  store: Store;
  volumes: NetworkVolumes;
  clock: Clock;
  log: Log;
  /** Each machine has a copy of a volume, and machines may come back. */
  hasCopies: boolean;
}

/**
 * Removes the content of deleted network volumes from the engine. The commit that deletes a volume notes what is left
 * to remove, so that a crash or an engine that does not answer only delays the removal. With several nodes, each
 * machine has a copy: the source stays noted, for a machine that is away now.
 */
export class VolumeRemovals {
  readonly #options: VolumeRemovalsOptions;
  /** Volumes whose failure is logged. */
  readonly #stuck = new Set<string>();
  #running: Promise<void> = Promise.resolve();
  /** A pass that has not begun. */
  #next: Promise<void> | undefined;
  /** Machines may have copies of deleted volumes. */
  #isLookDue = false;
  /** Copies to look for that were noted since the last look. */
  #noted = 0;
  #cancelTimer: (() => void) | undefined;
  #isStopped = true;

  constructor(options: VolumeRemovalsOptions) {
    this.#options = options;
  }

  /** This process manages the engine from now on. */
  start(): void {
    this.#isStopped = false;
    void this.noteMachines();
  }

  /** A machine may be back that was away when a volume was deleted. Resolves after a pass. */
  noteMachines(): Promise<void> {
    this.#isLookDue = true;
    return this.run();
  }

  /**
   * Removes what is left; repeats by itself what fails. Passes do not overlap, and all calls before the next one share it:
   * a user who deletes volumes quickly makes no queue of passes. Never rejects.
   */
  run(): Promise<void> {
    this.#cancelTimer?.();
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      return this.#pass();
    });
    this.#running = this.#next;
    return this.#running;
  }

  /** Resolves when no pass runs. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer?.();
    await this.#running;
  }

  async #pass(): Promise<void> {
    const { clock, log, store } = this.#options;
    if (this.#isStopped) return;
    let isDone = false;
    try {
      const left = await store.read((tx) => tx.resources({ kind: KIND, limit: PAGE }));
      const removed: boolean[] = [];
      for (const row of left) removed.push(await this.#remove(row));
      isDone = left.length < PAGE && !removed.includes(false);
      // A look reads all that was noted, so that a single removal needs none.
      if (this.#isLookDue || this.#noted >= PAGE) await this.#removeCopies();
    } catch (error) {
      isDone = false;
      this.#isLookDue = true;
      if (!this.#isStopped) log.warn({ err: error }, 'removing network volumes failed, retrying');
    }
    if (isDone || this.#isStopped) return;
    this.#cancelTimer = clock.after(RETRY_MS, () => void this.run());
  }

  /** @returns whether its content is gone. @throws the error of the store */
  async #remove(row: StoredResource): Promise<boolean> {
    const { clock, hasCopies, log, store, volumes } = this.#options;
    const { id, position } = row;
    if (this.#isStopped) return false;
    const gone = { ...row, kind: GONE_KIND, position: clock.now() };
    try {
      await volumes.remove(readSource(row));
      await store.write((tx) => {
        tx.removeResource({ kind: KIND, id });
        if (hasCopies) tx.putResource(gone);
      }, ENDING);
      if (hasCopies) this.#noted += 1;
    } catch (error) {
      const isNew = !this.#stuck.has(id);
      this.#stuck.add(id);
      if (isNew && !this.#isStopped) {
        log.warn({ volume: id, err: error }, 'network volume cannot be removed, retrying');
      }
      // Behind those that have failed less often: a page of them must not hold up the others.
      await store.write((tx) => {
        tx.removeResource({ kind: KIND, id });
        tx.putResource({ ...row, position: position - 1 });
      }, ENDING);
      return false;
    }
    this.#stuck.delete(id);
    log.info({ volume: id }, 'network volume removed');
    return true;
  }

  /** Removes what machines have that were away when a volume was deleted. @throws the error of store or engine */
  async #removeCopies(): Promise<void> {
    const { clock, hasCopies, log, store, volumes } = this.#options;
    if (!hasCopies || !volumes.list || this.#isStopped) return;
    this.#isLookDue = false;
    const noted = this.#noted;
    const listing = { kind: GONE_KIND, limit: MAX_GONE + PAGE };
    const gone = await store.read((tx) => tx.resources(listing));
    const found = new Set(gone.length === 0 ? [] : await volumes.list());
    for (const row of gone.filter((each) => found.has(readSource(each)))) {
      if (this.#isStopped) return;
      await volumes.remove(readSource(row));
      log.info({ volume: row.id }, 'copy of a deleted network volume removed');
    }
    // Newest first.
    const oldest = clock.now() - KEEP_GONE_MS;
    const isOver = ({ position }: StoredResource, index: number) =>
      index >= MAX_GONE || position < oldest;
    const over = gone.filter(isOver);
    if (over.length > 0) {
      await store.write((tx) => {
        for (const { id } of over) tx.removeResource({ kind: GONE_KIND, id });
      }, ENDING);
    }
    this.#noted -= noted;
  }
}

function readSource({ body }: StoredResource): string {
  return removal.parse(JSON.parse(body)).source;
}

export interface VolumeGrowthOptions {
  /** Undefined: the engine has no network volumes. */
  volumes: NetworkVolumes | undefined;
  log: Log;
}

/**
 * Tells the engine that network volumes have grown. A failure only delays it: each container that mounts the volume is
 * created with its size.
 *
 * One call of the engine at a time, with the last size of a volume: each call runs programs on the machines, so a user
 * who changes sizes quickly must neither make a queue of calls nor hold up the pods of others.
 */
export class VolumeGrowth {
  readonly #options: VolumeGrowthOptions;
  /** Sizes that the engine does not know yet, GB, by source. */
  readonly #waiting = new Map<string, number>();
  #running: Promise<void> | undefined;

  constructor(options: VolumeGrowthOptions) {
    this.#options = options;
  }

  /** Resolves when the engine knows the size, or cannot take it now. Never rejects. */
  grow(source: string, sizeGb: number): Promise<void> {
    this.#waiting.set(source, Math.max(sizeGb, this.#waiting.get(source) ?? 0));
    this.#running ??= this.#growAll();
    return this.#running;
  }

  async #growAll(): Promise<void> {
    for (const [source, sizeGb] of this.#waiting) {
      this.#waiting.delete(source);
      await this.#growOne(source, sizeGb);
    }
    this.#running = undefined;
  }

  async #growOne(source: string, sizeGb: number): Promise<void> {
    const { log, volumes } = this.#options;
    try {
      await volumes?.grow?.(source, sizeGb);
    } catch (error) {
      const note = { source, sizeGb, err: error };
      log.warn(note, 'network volume could not grow yet; it grows with its next container');
    }
  }
}
