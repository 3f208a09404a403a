// Reads the use of resources by containers from the engine, on demand and cached.
import { type Clock, sleep } from '../../base/clock.ts';
import type { ContainerStats, Engine } from '../../engine/engine.ts';

/** How long an answer is reused, ms. */
const FRESH_MS = 2_000;
/** Longest wait, ms: a record without the data is better than a late one. */
const PATIENCE_MS = 1_000;
const MAX_AT_ONCE = 8;

interface StatsSample {
  askedAt: number;
  stats: Promise<ContainerStats | undefined>;
}

export interface PodStatsOptions {
  engine: Engine;
  clock: Clock;
}

export class PodStats {
  readonly #options: PodStatsOptions;
  readonly #samples = new Map<string, StatsSample>();
  #asking = 0;

  constructor(options: PodStatsOptions) {
    this.#options = options;
  }

  /** Undefined if the container does not run, or if the engine does not answer in time. */
  async read(id: string): Promise<ContainerStats | undefined> {
    const answered = new AbortController();
    const late = sleep(this.#options.clock, PATIENCE_MS, answered.signal).then(() => undefined);
    try {
      return await Promise.race([this.#sample(id), late]);
    } finally {
      answered.abort();
    }
  }

  #sample(id: string): Promise<ContainerStats | undefined> {
    const now = this.#options.clock.now();
    for (const [known, { askedAt }] of this.#samples) {
      if (now - askedAt >= FRESH_MS) this.#samples.delete(known);
    }
    const known = this.#samples.get(id);
    if (known) return known.stats;
    if (this.#asking >= MAX_AT_ONCE) return Promise.resolve(undefined);
    const stats = this.#ask(id);
    this.#samples.set(id, { askedAt: now, stats });
    return stats;
  }

  async #ask(id: string): Promise<ContainerStats | undefined> {
    this.#asking++;
    try {
      return await this.#options.engine.stats(id);
    } catch {
      // The reconciler detects and reports an engine that does not respond.
      return undefined;
    } finally {
      this.#asking--;
    }
  }
}
