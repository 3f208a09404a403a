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
  /** When the run of the container began. */
  startedAt: number | null;
  askedAt: number;
  /** Never rejects. */
  answer: Promise<ContainerStats | undefined>;
  isAnswered: boolean;
  /** The last answer, and when it came. */
  known: ContainerStats | undefined;
  knownAt: number;
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
   * container does not run. Those of an earlier run do not count.
   */
  async read(id: string, startedAt: number | null): Promise<ContainerStats | undefined> {
    const sample = this.#sample(id, startedAt);
    if (!sample) return undefined;
    if (sample.isAnswered) return sample.known;
    const answered = new AbortController();
    const late = sleep(this.#options.clock, PATIENCE_MS, answered.signal);
    try {
      await Promise.race([sample.answer, late]);
      return this.#options.clock.now() - sample.knownAt < KEPT_MS ? sample.known : undefined;
    } finally {
      answered.abort();
    }
  }

  #sample(id: string, startedAt: number | null): StatsSample | undefined {
    const now = this.#options.clock.now();
    for (const [name, { askedAt, isAnswered }] of this.#samples) {
      if (isAnswered && now - askedAt >= KEPT_MS) this.#samples.delete(name);
    }
    const found = this.#samples.get(id);
    const last = found?.startedAt === startedAt ? found : undefined;
    if (last && (!last.isAnswered || now - last.askedAt < FRESH_MS)) return last;
    if (this.#asking >= MAX_AT_ONCE) return last;
    const answer = this.#ask(id);
    const { known, knownAt = now } = last ?? {};
    const sample: StatsSample = {
      ...{ startedAt, askedAt: now, answer, isAnswered: false },
      ...{ known, knownAt },
    };
    this.#samples.set(id, sample);
    void answer.then((known) => {
      sample.known = known;
      sample.knownAt = this.#options.clock.now();
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
