// What a worker does with the figures of its GPUs. It attributes them to the attempts that ran meanwhile, and asks
// for a new process if an attempt ran out of device memory and the memory did not come back. gpu-usage-feed.ts
// measures.
import { type Clock, callAt } from '../../base/clock.ts';
import type { GpuUsage } from '../../wire/job/attempt.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';

/** Longest wait of an outcome for figures, ms. */
const MAX_FIGURES_WAIT_MS = 1_500;
/** Time without waits after a wait that found no memory in use, ms. */
const NO_MEMORY_MS = 60_000;

/** Allocators, drivers and neighbours may keep this much. */
const RETURN_MARGIN_BYTES = 512 * 2 ** 20;
/** After the attempt, its memory gets this time to come back, ms. */
const SETTLE_MS = 1_000;
/** Without an answer by then, the worker takes jobs again, ms. */
const MAX_HOLD_MS = 10_000;

interface GpuAccountsOptions {
  /** Number of GPUs of the process. */
  devices: number;
  clock: Clock;
  /** Called when taking may resume. */
  onRelief: () => void;
  onRecycle: (reason: string) => void;
}

export class GpuAccounts {
  readonly #options: GpuAccountsOptions;
  readonly #meter: UsageMeter<Lease>;
  readonly #memory = new MemoryReturn<Lease>();
  /** The figures have the memory in use. */
  #isMeasured = false;
  #nextFigures: PromiseWithResolvers<'new' | 'none'> | undefined;
  #nextWaitAt = 0;

  constructor(options: GpuAccountsOptions) {
    this.#options = options;
    this.#meter = new UsageMeter({ devices: options.devices });
  }

  /** The worker should take no job for a moment: it waits for device memory to come back. */
  get isHolding(): boolean {
    return this.#memory.isPending(this.#options.clock.now());
  }

  begin(lease: Lease): void {
    this.#meter.begin(lease, this.#options.clock.now());
    this.#memory.begin(lease);
  }

  /** Time in which the attempt waits for the start of a model process does not count as its use. */
  hold(lease: Lease, isHeld: boolean): void {
    const now = this.#options.clock.now();
    if (isHeld) this.#meter.pause(lease, now);
    else this.#meter.resume(lease, now);
  }

  /**
   * Resolves with the next figures if those so far do not say how much memory a short attempt used. Undefined if they do, or
   * if the last such wait found no memory: the process may use none.
   */
  awaitFigures(lease: Lease): Promise<void> | undefined {
    const { clock } = this.#options;
    const isDue = this.#isMeasured && clock.now() >= this.#nextWaitAt;
    if (!isDue || this.#meter.knowsMemory(lease)) return undefined;
    this.#meter.pause(lease, clock.now());
    this.#nextFigures ??= Promise.withResolvers();
    const { promise, resolve } = this.#nextFigures;
    const cancel = clock.after(MAX_FIGURES_WAIT_MS, () => resolve('none'));
    return promise.then((figures) => {
      cancel();
      if (figures === 'new') this.#meter.addMemory(lease);
    });
  }

  /** Undefined if the attempt never began. */
  end(lease: Lease, outcome: Outcome): GpuUsage | undefined {
    const { clock, onRelief } = this.#options;
    const now = clock.now();
    const isOutOfMemory = outcome.kind === 'failed' && outcome.error.code === 'gpu_out_of_memory';
    if (this.#memory.end(lease, { isOutOfMemory, now })) callAt(clock, now + MAX_HOLD_MS, onRelief);
    return this.#meter.end(lease, now);
  }

  note(figures: GpuFigures): void {
    const { clock, onRecycle, onRelief } = this.#options;
    const now = clock.now();
    this.#meter.sample(figures, now);
    this.#isMeasured = figures.vramBytes !== undefined;
    if (this.#nextFigures && figures.vramBytes === 0) this.#nextWaitAt = now + NO_MEMORY_MS;
    this.#nextFigures?.resolve('new');
    this.#nextFigures = undefined;
    const verdict = this.#memory.judge(figures, now);
    if (verdict.kind === 'returned') onRelief();
    if (verdict.kind === 'kept') {
      const mib = Math.round(verdict.excessBytes / 2 ** 20);
      onRecycle(`a job ran out of GPU memory, and ${mib} MiB more than before it are still in use`);
    }
  }
}

interface Level {
  readonly bytes: number;
  readonly scope: GpuFigures['vramScope'];
}

interface Check {
  readonly before: Level;
  readonly endedAt: number;
}

/** `excessBytes`: in use above the level before the attempt. */
type ReturnVerdict =
  | { kind: 'unknown' }
  | { kind: 'returned' }
  | { kind: 'kept'; excessBytes: number };

/**
 * Decides whether device memory has come back after an attempt that ran out of it. Pure: the caller passes the time.
 */
export class MemoryReturn<Key> {
  /** Of the attempts that run: the memory in use before each. */
  readonly #levels = new Map<Key, Level | undefined>();
  #now: Level | undefined;
  #check: Check | undefined;

  /** The worker should take no job, so that the memory can be judged. */
  isPending(now: number): boolean {
    return this.#check !== undefined && now - this.#check.endedAt < MAX_HOLD_MS;
  }

  begin(key: Key): void {
    this.#levels.set(key, this.#now);
  }

  /** Returns whether a check begins. Without figures from before the attempt there is none. */
  end(key: Key, end: { isOutOfMemory: boolean; now: number }): boolean {
    const before = this.#levels.get(key);
    this.#levels.delete(key);
    if (!end.isOutOfMemory || !before) return false;
    const earlier = this.#check?.before;
    const lowest = earlier && earlier.bytes < before.bytes ? earlier : before;
    this.#check = { before: lowest, endedAt: end.now };
    return true;
  }

  /** Judges only while nothing runs: a running attempt may use what it needs. */
  judge(figures: GpuFigures, now: number): ReturnVerdict {
    const { vramBytes: bytes, vramScope: scope } = figures;
    this.#now = bytes === undefined ? undefined : { bytes, scope };
    const check = this.#check;
    if (!check || bytes === undefined || check.before.scope !== scope) return { kind: 'unknown' };
    if (!this.isPending(now)) this.#check = undefined;
    const isIdle = this.#levels.size === 0;
    if (!isIdle || !this.#check || now - check.endedAt < SETTLE_MS) return { kind: 'unknown' };
    this.#check = undefined;
    const excessBytes = bytes - check.before.bytes;
    return excessBytes > RETURN_MARGIN_BYTES ? { kind: 'kept', excessBytes } : { kind: 'returned' };
  }
}

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

interface UsageMeterOptions {
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

interface MeteredAttempt {
  /** Time at which the attempt began, or continued after a pause. */
  beganAt: number;
  /** Value of `#shareMs` at that time. */
  shareAtBegin: number;
  /** Share before the last pause, ms. */
  shareMs: number;
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
  readonly #running = new Map<Key, MeteredAttempt>();
  readonly #paused = new Map<Key, MeteredAttempt>();
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
      shareMs: 0,
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

  /**
   * Whether the usage of the attempt would say how much memory it used: a sample came while it ran, or the last one
   * before it found some. One that found none says nothing, because the process may have taken memory since.
   */
  knowsMemory(key: Key): boolean {
    const attempt = this.#running.get(key);
    if (!attempt || attempt.vramPeakBytes !== undefined) return true;
    return (this.#last?.figures.vramBytes ?? 0) > 0;
  }

  /** The attempt uses nothing until `resume` or its end. */
  pause(key: Key, now: number): void {
    const attempt = this.#running.get(key);
    if (!attempt) return;
    this.#advance(now);
    this.#running.delete(key);
    this.#paused.set(key, attempt);
    const last = this.#last;
    if (last && this.#countedUntil - last.at <= validityOf(last.figures)) {
      this.#add(attempt, omitStale(last, attempt));
    }
    attempt.shareMs += this.#shareMs - attempt.shareAtBegin;
  }

  resume(key: Key, now: number): void {
    const attempt = this.#paused.get(key);
    if (!attempt) return;
    this.#advance(now);
    this.#paused.delete(key);
    attempt.beganAt = this.#countedUntil;
    attempt.shareAtBegin = this.#shareMs;
    this.#running.set(key, attempt);
  }

  /** Returns undefined if the attempt never began. */
  end(key: Key, now: number): GpuUsage | undefined {
    this.pause(key, now);
    const attempt = this.#paused.get(key);
    if (!attempt) return undefined;
    this.#paused.delete(key);
    return this.#summarize(attempt);
  }

  /** Adds the memory of the last sample, taken while the attempt was paused, if the attempt has no sample of its own. */
  addMemory(key: Key): void {
    const attempt = this.#paused.get(key);
    if (!attempt || !this.#last || attempt.vramPeakBytes !== undefined) return;
    const { vramBytes, vramScope } = this.#last.figures;
    addVram(attempt, { vramBytes, vramScope }, NO_TIME_MS);
  }

  /** A clock that is set back stands still here until it has caught up. */
  #advance(now: number): void {
    const elapsedMs = now - this.#countedUntil;
    if (elapsedMs <= 0) return;
    if (this.#running.size > 0) this.#shareMs += elapsedMs / this.#running.size;
    this.#countedUntil = now;
  }

  /** Counts the figures for the attempt's time since the last sample, if that is not too long ago. */
  #add(attempt: MeteredAttempt, figures: GpuFigures): void {
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
    addVram(attempt, figures, weight);
  }

  #summarize(attempt: MeteredAttempt): GpuUsage {
    const shareSeconds = attempt.shareMs / 1_000;
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

/** A sample from before the attempt that found no memory: the process may have taken some since. */
function omitStale({ at, figures }: Sample, { beganAt }: MeteredAttempt): GpuFigures {
  return at <= beganAt && figures.vramBytes === 0 ? { ...figures, vramBytes: undefined } : figures;
}

function addVram(
  attempt: MeteredAttempt,
  { vramBytes, vramScope }: Pick<GpuFigures, 'vramBytes' | 'vramScope'>,
  weight: number,
): void {
  if (vramBytes === undefined) return;
  addTo(attempt.vram, vramBytes, weight);
  attempt.vramPeakBytes = Math.max(attempt.vramPeakBytes ?? 0, vramBytes);
  if (vramScope === 'devices') attempt.vramScope = 'devices';
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
