// Reads the use of resources by containers from the engine, on demand and cached.
import { type Clock, sleep } from '../../base/clock.ts';
import type { ContainerStats, Engine } from '../../engine/engine.ts';

/** How long an answer is reused without another question, ms. */
const FRESH_MS = 2_000;
/** How long an answer stands in for one that is late, ms. */
const KEPT_MS = 30_000;
/** Longest wait, ms: a record with older data, or without them, is better than a late one. */
const PATIENCE_MS = 100;
const MAX_AT_ONCE = 8;

interface StatsSample {
  askedAt: number;
  /** Never rejects. */
  answer: Promise<ContainerStats | undefined>;
  isAnswered: boolean;
  /** The last answer. */
  known: ContainerStats | undefined;
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

  /**
   * The last known ones if the engine does not answer at once; its answer is then kept for the next call. Undefined if the
   * container does not run.
   */
  async read(id: string): Promise<ContainerStats | undefined> {
    const sample = this.#sample(id);
    if (!sample || sample.isAnswered) return sample?.known;
    const answered = new AbortController();
    const late = sleep(this.#options.clock, PATIENCE_MS, answered.signal);
    try {
      await Promise.race([sample.answer, late]);
      return sample.known;
    } finally {
      answered.abort();
    }
  }

  #sample(id: string): StatsSample | undefined {
    const now = this.#options.clock.now();
    for (const [name, { askedAt, isAnswered }] of this.#samples) {
      if (isAnswered && now - askedAt >= KEPT_MS) this.#samples.delete(name);
    }
    const last = this.#samples.get(id);
    if (last && (!last.isAnswered || now - last.askedAt < FRESH_MS)) return last;
    if (this.#asking >= MAX_AT_ONCE) return last;
    const answer = this.#ask(id);
    const sample: StatsSample = { askedAt: now, answer, isAnswered: false, known: last?.known };
    this.#samples.set(id, sample);
    void answer.then((known) => {
      sample.known = known;
      sample.isAnswered = true;
    });
    return sample;
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
