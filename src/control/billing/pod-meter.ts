// Measures the containers of pods: keeps when each was last seen to run, and the price in force.
// intervals.ts decides what is billed.
import type { Clock } from '../../base/clock.ts';
import type { Container } from '../../engine/engine.ts';
import type { PodState } from '../pods/pod-state.ts';
import type { BilledResource } from './bill-rows.ts';
import { type Interval, type Measured, measure, type Rate } from './intervals.ts';

/** A run is added to the bill at least so often, ms: what a crash can lose of a container that vanishes with it. */
const DUE_MS = 300_000;
/** Clocks that drift apart by less were not set forward, ms. */
const MIN_SKIP_MS = 1_000;

export interface PodMeterOptions {
  clock: Clock & { monotonic?: () => number };
  /** USD per hour while the pod runs. */
  catalog: { priceOf: (spec: PodState['spec']) => number };
}

/** When an observation of containers began. */
export interface LastSight {
  at: number;
  monotonic: number;
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
    const { clock } = this.#options;
    const at = clock.now();
    return { at, monotonic: clock.monotonic?.() ?? at };
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
    const passedMs = last ? sight.monotonic - last.monotonic : 0;
    const skippedMs = last ? at - last.at - passedMs : 0;
    return measure(meter, {
      seen,
      at,
      lastAt: last?.at,
      rate: this.#rateOf(pod, seen),
      skippedMs: skippedMs >= MIN_SKIP_MS ? skippedMs : 0,
      isDue: at - meter.until >= DUE_MS,
    });
  }

  /** A container that is about to be replaced keeps its rate. */
  #rateOf({ generation, meter, spec }: PodState, seen: Container | undefined): Rate {
    const { catalog } = this.#options;
    if (seen && seen.generation !== generation && meter.run !== null) {
      return { price: meter.price, gpus: meter.gpus };
    }
    return { price: Math.round(catalog.priceOf(spec) * 1_000_000), gpus: spec.gpu?.count ?? 0 };
  }
}

/** The resource whose bill has the pod: a worker is billed with its endpoint. */
export function billedAs({ endpointId, id, spec, userId }: PodState): BilledResource {
  if (endpointId !== null) return { kind: 'endpoint', id: endpointId, userId, name: null };
  return { kind: 'pod', id, userId, name: spec.name };
}
