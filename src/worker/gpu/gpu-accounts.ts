// What a worker does with the figures of its GPUs: it counts them for attempts, and asks for a new
// process if an attempt ran out of device memory and the memory did not come back.
import { type Clock, callAt } from '../../base/clock.ts';
import type { GpuUsage } from '../../wire/job/attempt.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';
import { type GpuFigures, UsageMeter } from './usage-meter.ts';

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
