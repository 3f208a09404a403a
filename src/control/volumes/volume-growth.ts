// Tells the engine that network volumes have grown. A failure only delays it: each container that mounts the volume is
// created with its size.
import type { Log } from '../../base/log.ts';
import type { NetworkVolumes } from '../../engine/engine.ts';

export interface VolumeGrowthOptions {
  /** Undefined: the engine has no network volumes. */
  volumes: NetworkVolumes | undefined;
  log: Log;
}

/**
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
