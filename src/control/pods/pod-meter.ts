// Measures the containers of pods: keeps when each was last seen to run, and decides which time is billed, by a pure function
// of (meter, observation). A meter is part of its pod's record, so an interval ends in the same commit as the change that ends it.
import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Container } from '../../engine/engine.ts';
import type { Transaction } from '../../store/store.ts';
import type { BilledResource } from '../billing/bill-rows.ts';
import type { PodState } from './pod-state.ts';

/** Where the use of pods goes. Intervals are added in the commit that ends them. */
export interface Bill {
  add: (tx: Transaction, resource: BilledResource, intervals: readonly Interval[]) => void;
  /** The commit is on disk. Default: nothing happens. */
  added?: ((resource: BilledResource, intervals: readonly Interval[]) => void) | undefined;
}

/** A run is added to the bill at least so often, ms: what a crash can lose of a container that vanishes with it. */
const DUE_MS = 300_000;
/** Clocks that drift apart by less were not set forward, ms. */
const MIN_SKIP_MS = 1_000;

/** Without a monotonic clock, nobody notices that the clock was set. */
export type MeterClock = Clock & { monotonic?: () => number };

export interface PodMeterOptions {
  clock: MeterClock;
  /** USD per hour while the pod runs. */
  catalog: { priceOf: (spec: PodState['spec']) => number };
}

/** When an observation of what is metered began. */
export interface LastSight {
  at: number;
  monotonic: number;
}

export function beginSight(clock: MeterClock): LastSight {
  const at = clock.now();
  return { at, monotonic: clock.monotonic?.() ?? at };
}

/** Time in a clock that was set forward between two observations, ms. */
export function findSkip(last: LastSight | undefined, { at, monotonic }: LastSight): number {
  const skippedMs = last ? at - last.at - (monotonic - last.monotonic) : 0;
  return skippedMs >= MIN_SKIP_MS ? skippedMs : 0;
}

export interface BilledChange {
  pod: PodState;
  intervals: readonly Interval[];
}

export class PodMeter {
  readonly #options: PodMeterOptions;
  readonly #last = new Map<string, LastSight>();

  constructor(options: PodMeterOptions) {
    this.#options = options;
  }

  /** Another process may have managed the pods. */
  clear(): void {
    this.#last.clear();
  }

  /** Begins the observation of containers, before the engine is asked. */
  begin(): LastSight {
    return beginSight(this.#options.clock);
  }

  /** Bills what the observation of its container shows. */
  measure(pod: PodState, seen: Container | undefined, sight: LastSight): BilledChange {
    const { intervals, meter } = this.#measure(pod, seen, sight);
    return { pod: meter === pod.meter ? pod : { ...pod, meter }, intervals };
  }

  /** The container was observed. Call it after `measure`. */
  note(id: string, seen: Container | undefined, sight: LastSight): void {
    if (seen?.state === 'running') this.#last.set(id, sight);
    else this.#last.delete(id);
  }

  /** Whether `measure` would change the meter. */
  needsMeasuring(pod: PodState, seen: Container | undefined, sight: LastSight): boolean {
    return this.#measure(pod, seen, sight).meter !== pod.meter;
  }

  /** The time that no row has yet. */
  openInterval({ id, meter, unreachable }: PodState): Interval | undefined {
    const last = this.#last.get(id);
    if (meter.run === null || !last || unreachable) return undefined;
    const { gpus, price, until: from } = meter;
    return last.at > from ? { from, to: last.at, price, gpus } : undefined;
  }

  /**
   * The time up to `now` that may be billed of a container that this process has not observed yet: it ran when an
   * earlier process saw it last.
   */
  unseenInterval({ id, meter, unreachable }: PodState, now: number): Interval | undefined {
    if (meter.run === null || this.#last.has(id)) return undefined;
    const { gpus, price, until: from } = meter;
    const to = Math.min(unreachable?.since ?? now, now);
    return to > from ? { from, to, price, gpus } : undefined;
  }

  #measure(pod: PodState, seen: Container | undefined, sight: LastSight): Measured {
    const { at } = sight;
    const last = this.#last.get(pod.id);
    const { meter } = pod;
    return measure(meter, {
      seen,
      at,
      lastAt: last?.at,
      rate: this.#rateOf(pod, seen),
      skippedMs: findSkip(last, sight),
      isDue: at - meter.until >= DUE_MS,
    });
  }

  /** A container that is about to be replaced keeps its rate. A parked one is free: others use its GPUs. */
  #rateOf({ generation, gpus, meter, parked, spec }: PodState, seen: Container | undefined): Rate {
    const { catalog } = this.#options;
    if (seen && seen.generation !== generation && meter.run !== null) {
      return { price: meter.price, gpus: meter.gpus };
    }
    if (parked && gpus.length === 0) return { price: 0, gpus: 0 };
    return { price: Math.round(catalog.priceOf(spec) * 1_000_000), gpus: spec.gpu?.count ?? 0 };
  }
}

/** The resource whose bill has the pod: a worker is billed with its endpoint. */
export function billedAs({ endpointId, id, spec, userId }: PodState): BilledResource {
  if (endpointId !== null) return { kind: 'endpoint', id: endpointId, userId, name: null };
  return { kind: 'pod', id, userId, name: spec.name };
}

/** All times are Unix ms. */
export const meterState = z.object({
  /** All time before is decided: billed, or free. It never goes back, so no time is billed twice. */
  until: z.number(),
  /** The run that is billed from `until` on; null: none is. */
  run: z.string().nullable(),
  /** The last run whose end is billed. */
  ended: z.string().nullable(),
  /** In force since `until`: see Rate. */
  price: z.int().min(0),
  hours: z.int().min(1).exactOptional(),
  gpus: z.int().min(0),
});
export type MeterState = z.infer<typeof meterState>;

/** What a resource costs while it is billed. */
export interface Rate {
  /** Millionths of a USD for `hours`. */
  price: number;
  /** Default: 1. A price for a month would lose digits as a price for an hour. */
  hours?: number;
  gpus: number;
}

/** Time of one resource at one price. */
export interface Interval extends Rate {
  /** Unix ms; the end is not included. */
  from: number;
  to: number;
}

/** An observation of a container by the platform. */
export interface Sight {
  /** Undefined: it does not exist. */
  seen: Pick<Container, 'generation' | 'state' | 'startedAt' | 'endedAt'> | undefined;
  /** When the platform asked the engine. */
  at: number;
  /** When this process last saw it run; undefined: never. */
  lastAt: number | undefined;
  /** The clock was set forward by this since `lastAt`, ms: time that did not pass. */
  skippedMs: number;
  rate: Rate;
  /** Bill the time up to now although nothing ends. */
  isDue: boolean;
}

export interface Measured {
  /** The same object if nothing has changed. */
  meter: MeterState;
  intervals: readonly Interval[];
}

/**
 * Clocks of two machines may differ by this, and an engine may round its times, ms. Time of a running container is
 * decided only so long after it has passed: then the end that the engine records, by its own clock, is never before it.
 */
const SLACK_MS = 10_000;

/** A meter that is further ahead of the clock was moved by a clock that has been set back since, ms. */
const MAX_AHEAD_MS = 3_600_000;

export function openMeter(now: number): MeterState {
  return { until: now - SLACK_MS, run: null, ended: null, price: 0, gpus: 0 };
}

/**
 * A run is billed from its start to its end, as the engine recorded them. What nobody saw is free: a container that is
 * gone without a trace is billed up to the last time that the platform saw it run.
 */
export function measure(known: MeterState, sight: Sight): Measured {
  const { at, seen } = sight;
  const meter = catchUp(known, at);
  const run = seen && seen.state !== 'created' ? nameRun(seen) : undefined;
  if (meter.run !== null && run === meter.run && seen) {
    return seen.state === 'running' ? proceed(meter, sight) : close(meter, sight, seen.endedAt);
  }
  const closed = meter.run === null ? { meter, intervals: [] } : close(meter, sight, undefined);
  if (run === undefined || !seen || run === closed.meter.ended) return closed;
  const opened = begin(closed.meter, { sight, run, startedAt: seen.startedAt });
  if (seen.state === 'running') return { meter: opened, intervals: closed.intervals };
  const over = close(opened, { ...sight, lastAt: undefined }, seen.endedAt);
  return { meter: over.meter, intervals: [...closed.intervals, ...over.intervals] };
}

/** Otherwise nothing would be billed until the clock has reached the meter again. `at`: Unix ms of now */
export function catchUp(meter: MeterState, at: number): MeterState {
  return meter.until - at > MAX_AHEAD_MS ? { ...meter, until: at } : meter;
}

function nameRun({ generation, startedAt }: { generation: number; startedAt: number | null }) {
  return `${generation}/${startedAt ?? 0}`;
}

/** A start that cannot be true, because a clock was set back, counts as now. */
function begin(
  meter: MeterState,
  { run, sight, startedAt }: { run: string; sight: Sight; startedAt: number | null },
): MeterState {
  const { at, rate } = sight;
  const isPossible =
    startedAt !== null && startedAt >= meter.until - SLACK_MS && startedAt <= at + SLACK_MS;
  return { ...meter, ...rate, run, until: Math.max(meter.until, isPossible ? startedAt : at) };
}

/** It runs. */
export function proceed(meter: MeterState, sight: Omit<Sight, 'seen' | 'lastAt'>): Measured {
  const { at, isDue, rate, skippedMs } = sight;
  const isSame =
    rate.price === meter.price && rate.gpus === meter.gpus && rate.hours === meter.hours;
  const isCut = !isSame || skippedMs > 0;
  const to = isCut ? at : at - SLACK_MS;
  // Another platform, whose clock was ahead, has billed time to come: what follows that has the new rate.
  if (to < meter.until && !isSame) return { meter: { ...meter, ...rate }, intervals: [] };
  if ((!isCut && !isDue) || to < meter.until) return { meter, intervals: [] };
  const from = skip(meter.until, sight);
  return { meter: { ...meter, ...rate, until: to }, intervals: cut(meter, from, to) };
}

/** Meters a container that has ended. `endedAt` null or undefined: the time of the end is unknown. */
export function close(
  meter: MeterState,
  sight: Pick<Sight, 'at' | 'lastAt' | 'skippedMs'>,
  endedAt: number | null | undefined,
): Measured {
  const { at, lastAt } = sight;
  const from = skip(meter.until, sight);
  const last = Math.max(from, lastAt === undefined ? from : skip(lastAt, sight));
  const to = Math.max(from, Math.min(chooseEnd(endedAt, last), at + SLACK_MS));
  const over = { ...meter, until: Math.max(meter.until, to), run: null, ended: meter.run };
  return { meter: over, intervals: cut(meter, from, to) };
}

/** An end that cannot be true, because a clock was set back, counts as the last time that it was seen to run. */
function chooseEnd(endedAt: number | null | undefined, last: number): number {
  return endedAt != null && endedAt >= last - SLACK_MS ? endedAt : last;
}

/** The time in the clock that was set forward. */
function skip(time: number, { at, skippedMs }: Pick<Sight, 'at' | 'skippedMs'>): number {
  return Math.max(time, Math.min(time + skippedMs, at));
}

function cut({ gpus, hours, price }: MeterState, from: number, to: number): Interval[] {
  return to > from ? [{ from, to, price, gpus, ...(hours !== undefined && { hours }) }] : [];
}
