// What pods, endpoints and volumes have cost since this process manages them, for metrics. In memory: the bill is exact.
import type { Clock } from '../../base/clock.ts';
import type { BilledKind } from '../../wire/resources/billing.ts';
import { type Amount, addAmounts, amountOf, type BilledResource, NO_AMOUNT } from './bill-rows.ts';
import type { Interval } from './intervals.ts';

/** Units of the bill in a USD: millionths of a USD per hour times ms. */
const UNITS_PER_USD = 1_000_000 * 3_600_000;

/** One time series: an endpoint, all pods, or all volumes. */
export interface CostTotal {
  kind: BilledKind;
  /** Empty for pods and volumes. */
  endpointId: string;
  usd: number;
  gpuSeconds: number;
}

interface Sum extends Pick<CostTotal, 'kind' | 'endpointId'> {
  amount: Amount;
}

export class CostTotals {
  readonly #clock: Clock;
  #since: number;
  /** Of intervals that are on the bill. */
  readonly #sums = new Map<string, Sum>();
  /** A counter must not go back, and the time of a container that cannot be reached is not known for a while. */
  readonly #shown = new Map<string, CostTotal>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#since = clock.now();
  }

  /** Counts from 0: this process manages pods and volumes from now on. */
  start(): void {
    this.#since = this.#clock.now();
    this.#sums.clear();
    this.#shown.clear();
  }

  /** The intervals are on the bill. */
  add(resource: BilledResource, intervals: readonly Interval[]): void {
    for (const interval of intervals) this.#add(this.#sums, resource, interval);
  }

  /** `open`: the time that is not on the bill yet. `exists`: whether the endpoint has not been deleted. */
  read(
    open: Iterable<{ resource: BilledResource; interval: Interval }>,
    exists: (endpointId: string) => boolean,
  ): CostTotal[] {
    for (const [key, { endpointId }] of this.#sums) {
      if (endpointId === '' || exists(endpointId)) continue;
      this.#sums.delete(key);
      this.#shown.delete(key);
    }
    const sums = new Map(this.#sums);
    for (const { interval, resource } of open) this.#add(sums, resource, interval);
    for (const [key, { amount, endpointId, kind }] of sums) {
      if (endpointId !== '' && !exists(endpointId)) continue;
      const shown = this.#shown.get(key);
      this.#shown.set(key, {
        ...{ kind, endpointId },
        usd: Math.max(shown?.usd ?? 0, Number(amount.units) / UNITS_PER_USD),
        gpuSeconds: Math.max(shown?.gpuSeconds ?? 0, amount.gpuMs / 1_000),
      });
    }
    return [...this.#shown.values()];
  }

  #add(sums: Map<string, Sum>, { id, kind }: BilledResource, interval: Interval): void {
    const from = Math.max(interval.from, this.#since);
    if (from >= interval.to) return;
    const endpointId = kind === 'endpoint' ? id : '';
    const key = `${kind}/${endpointId}`;
    const before = sums.get(key)?.amount ?? NO_AMOUNT;
    const amount = addAmounts(before, amountOf({ ...interval, from }));
    sums.set(key, { kind, endpointId, amount });
  }
}
