// Attributes the figures of GPUs to the attempts that ran meanwhile. Pure: the caller passes the
// time. gpu-usage-feed.ts measures.
import type { GpuUsage } from '../../wire/job/job.ts';

/** One measurement of the devices of a worker process. What could not be measured is absent. */
export interface GpuFigures {
  /** Memory in use, summed over the devices. */
  vramBytes?: number | undefined;
  vramScope: 'process' | 'devices';
  /** 0 to 1, mean over the devices. */
  utilization?: number | undefined;
  /** Summed over the devices. */
  powerWatts?: number | undefined;
  /** How long they hold for later time, and for the time before them, ms. Default 5,000. */
  validMs?: number;
}

export interface UsageMeterOptions {
  /** Number of devices of the process. */
  devices: number;
}

/** Weight of an instant, ms. */
const NO_TIME_MS = 1e-6;

/** The time-weighted mean of one figure. */
interface Mean {
  sum: number;
  weight: number;
}

interface RunningAttempt {
  readonly beganAt: number;
  /** Value of `#shareMs` at the begin. */
  readonly shareAtBegin: number;
  /** Number of begins in the process up to this one. */
  readonly begins: number;
  readonly beganShared: boolean;
  readonly vram: Mean;
  readonly utilization: Mean;
  readonly power: Mean;
  vramPeakBytes: number | undefined;
  vramScope: GpuFigures['vramScope'];
}

interface Sample {
  readonly at: number;
  readonly shareMs: number;
  readonly figures: GpuFigures;
}

/**
 * The driver's figures are means over the time before they are read, so a sample holds for the time
 * since the sample before it. The time after the last sample has the figures of that sample until
 * the next one arrives: the outcome of an attempt does not wait for it.
 */
export class UsageMeter<Key> {
  readonly #devices: number;
  readonly #running = new Map<Key, RunningAttempt>();
  #begins = 0;
  /** Sum of elapsed ms ÷ running attempts: what one attempt that always ran has had alone. */
  #shareMs = 0;
  #countedUntil = Number.NEGATIVE_INFINITY;
  #last: Sample | undefined;

  constructor({ devices }: UsageMeterOptions) {
    this.#devices = devices;
  }

  get running(): number {
    return this.#running.size;
  }

  begin(key: Key, now: number): void {
    this.#advance(now);
    this.#begins += 1;
    this.#running.set(key, {
      beganAt: this.#countedUntil,
      shareAtBegin: this.#shareMs,
      begins: this.#begins,
      beganShared: this.#running.size > 0,
      vram: { sum: 0, weight: 0 },
      utilization: { sum: 0, weight: 0 },
      power: { sum: 0, weight: 0 },
      vramPeakBytes: undefined,
      vramScope: 'process',
    });
  }

  /** Adds a sample of now. */
  sample(figures: GpuFigures, now: number): void {
    this.#advance(now);
    for (const attempt of this.#running.values()) this.#add(attempt, figures);
    this.#last = { at: this.#countedUntil, shareMs: this.#shareMs, figures };
  }

  /** Undefined if the attempt never began. */
  end(key: Key, now: number): GpuUsage | undefined {
    const attempt = this.#running.get(key);
    if (!attempt) return undefined;
    this.#advance(now);
    this.#running.delete(key);
    const last = this.#last;
    if (last && this.#countedUntil - last.at <= validityOf(last.figures)) {
      this.#add(attempt, last.figures);
    }
    return this.#summarize(attempt);
  }

  /** A clock that is set back stands still here until it has caught up. */
  #advance(now: number): void {
    const elapsedMs = now - this.#countedUntil;
    if (elapsedMs <= 0) return;
    if (this.#running.size > 0) this.#shareMs += elapsedMs / this.#running.size;
    this.#countedUntil = now;
  }

  /** Counts the figures for the attempt's time since the last sample, if that is not too long ago. */
  #add(attempt: RunningAttempt, figures: GpuFigures): void {
    const now = this.#countedUntil;
    const isFirst = this.#last === undefined || this.#last.at < attempt.beganAt;
    const from = isFirst ? attempt.beganAt : (this.#last?.at ?? attempt.beganAt);
    const shareFrom = isFirst ? attempt.shareAtBegin : (this.#last?.shareMs ?? 0);
    const spanMs = now - from;
    const validMs = validityOf(figures);
    const knownPart = spanMs > validMs ? validMs / spanMs : 1;
    // An attempt without any time also gets the figures of its instant.
    const weight = Math.max(spanMs * knownPart, NO_TIME_MS);
    const shareWeight = Math.max((this.#shareMs - shareFrom) * knownPart, NO_TIME_MS);
    addTo(attempt.utilization, figures.utilization, weight);
    addTo(attempt.power, figures.powerWatts, shareWeight);
    if (figures.vramBytes === undefined) return;
    addTo(attempt.vram, figures.vramBytes, weight);
    attempt.vramPeakBytes = Math.max(attempt.vramPeakBytes ?? 0, figures.vramBytes);
    if (figures.vramScope === 'devices') attempt.vramScope = 'devices';
  }

  #summarize(attempt: RunningAttempt): GpuUsage {
    const shareSeconds = (this.#shareMs - attempt.shareAtBegin) / 1_000;
    const watts = meanOf(attempt.power);
    const vramMean = meanOf(attempt.vram);
    const utilization = meanOf(attempt.utilization);
    const { vramPeakBytes, vramScope } = attempt;
    return {
      seconds: round(this.#devices * shareSeconds, 3),
      ...(vramPeakBytes !== undefined && { vramPeakBytes: Math.round(vramPeakBytes) }),
      ...(vramMean !== undefined && { vramMeanBytes: Math.round(vramMean), vramScope }),
      ...(utilization !== undefined && { utilizationMean: round(utilization, 4) }),
      ...(watts !== undefined && { energyJoules: round(watts * shareSeconds, 3) }),
      shared: attempt.beganShared || this.#begins > attempt.begins,
    };
  }
}

function validityOf({ validMs = 5_000 }: GpuFigures): number {
  return validMs;
}

function addTo(mean: Mean, value: number | undefined, weight: number): void {
  if (value === undefined) return;
  mean.sum += value * weight;
  mean.weight += weight;
}

function meanOf({ sum, weight }: Mean): number | undefined {
  return weight === 0 ? undefined : sum / weight;
}

function round(value: number, digits: number): number {
  return Math.round(value * 10 ** digits) / 10 ** digits;
}
