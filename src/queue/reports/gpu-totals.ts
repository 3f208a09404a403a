// Counts what the attempts of each endpoint used of GPUs, for metrics. In memory: since the start.
import type { GpuUsage } from '../../wire/job/attempt.ts';

export interface GpuTotal {
  seconds: number;
  /** Only of attempts whose worker measured it. */
  energyJoules: number;
}

export class GpuTotals {
  /** When counting began, Unix ms. */
  readonly since: number;
  readonly #totals = new Map<string, GpuTotal>();

  constructor(now: number) {
    this.since = now;
  }

  /** By endpoint; without endpoints that have used none. */
  get all(): ReadonlyMap<string, Readonly<GpuTotal>> {
    return this.#totals;
  }

  add(endpointId: string, { energyJoules = 0, seconds }: GpuUsage): void {
    const total = this.#totals.get(endpointId) ?? { seconds: 0, energyJoules: 0 };
    total.seconds += seconds;
    total.energyJoules += energyJoules;
    this.#totals.set(endpointId, total);
  }

  /** Call this after the endpoint's row was removed. */
  forgetEndpoint(endpointId: string): void {
    this.#totals.delete(endpointId);
  }
}
