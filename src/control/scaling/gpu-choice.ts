// Chooses the GPU type of a new worker: the first type of the endpoint's list with a free device, without those for
// which a cluster has no capacity.
import type { PodState } from '../pods/pod-state.ts';

export interface GpuStock {
  /** UUIDs of all devices of a type. */
  devicesOf: (typeId: string) => readonly string[];
  pods: readonly PodState[];
}

/** Number of free devices of each type that nobody waits for. */
export function countFreeGpus(
  types: readonly string[],
  { devicesOf, pods }: GpuStock,
): Map<string, number> {
  const held = new Set(pods.flatMap(({ gpus }) => gpus));
  return new Map(
    types.map((type) => {
      const free = devicesOf(type).filter((device) => !held.has(device)).length;
      return [type, Math.max(0, free - countAwaited(type, pods))];
    }),
  );
}

function countAwaited(type: string, pods: readonly PodState[]): number {
  const waiting = pods.filter(
    ({ desired, gpus, spec }) =>
      desired === 'running' && gpus.length === 0 && spec.gpu?.id === type,
  );
  return waiting.reduce((sum, { spec }) => sum + (spec.gpu?.count ?? 0), 0);
}

/** Returns a type for each of at most `count` workers, `first` ones first; fewer if too few devices are free. */
export function chooseGpuTypes(
  free: ReadonlyMap<string, number>,
  count: number,
  first: readonly string[] = [],
): string[] {
  const offered = [...free].flatMap(([type, number]) => {
    const left = number - first.filter((each) => each === type).length;
    return new Array<string>(Math.max(0, left)).fill(type);
  });
  return [...first, ...offered].slice(0, count);
}

/** After that time the type is tried again, ms. A cluster that adds machines needs minutes for one. */
export const CROWDED_MS = 5 * 60_000;

/**
 * Remembers the GPU types for which a cluster has no capacity, so that an endpoint moves on to its next type at once.
 * Only in memory: a new platform process learns them again.
 */
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
