// Remembers the GPU types for which a cluster has no capacity, so that an endpoint moves on to its next type at once.
// Pure but for its memory; a new platform process learns them again.
import type { PodState } from '../pods/pod-state.ts';

/** After that time the type is tried again, ms. A cluster that adds machines needs minutes for one. */
export const CROWDED_MS = 5 * 60_000;

export class CrowdedGpus {
  /** By GPU type, when it is tried again, Unix ms. */
  readonly #until = new Map<string, number>();

  /** A worker waits for capacity of this type. */
  note(gpuType: string, now: number): void {
    if (!this.has(gpuType, now)) this.#until.set(gpuType, now + CROWDED_MS);
  }

  has(gpuType: string, now: number): boolean {
    return (this.#until.get(gpuType) ?? 0) > now;
  }

  /** The free devices without those of crowded types. */
  withoutCrowded(free: ReadonlyMap<string, number>, now: number): Map<string, number> {
    return new Map([...free].map(([type, count]) => [type, this.has(type, now) ? 0 : count]));
  }

  /**
   * Of workers that wait for capacity, those that another type of the endpoint's list can replace: at most as many as it has
   * free devices. A worker of the last type stays, because the cluster may still add a machine for it.
   */
  findMovable(
    waiting: readonly PodState[],
    free: ReadonlyMap<string, number>,
    now: number,
  ): Set<string> {
    const left = this.withoutCrowded(free, now);
    const places = [...left.values()].reduce((sum, count) => sum + count, 0);
    return new Set(waiting.slice(0, places).map(({ id }) => id));
  }
}
