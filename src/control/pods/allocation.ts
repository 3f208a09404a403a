// Assigns free GPUs to waiting pods. Pure.

export interface GpuWish {
  podId: string;
  count: number;
  /** UUIDs of the GPUs that it needs, all of them; null: any. */
  among: readonly string[] | null;
}

export interface GpuAllocation {
  /** UUIDs of all GPUs of the type. */
  devices: readonly string[];
  held: ReadonlySet<string>;
  /** Wishes for this type, the longest waiting first. */
  wishes: readonly GpuWish[];
}

/**
 * Returns the GPUs of each pod that gets any. A pod that waits for several GPUs of any kind is not
 * overtaken, otherwise many small wishes would starve a large one; a pod that waits for particular
 * GPUs does not block others.
 */
export function allocateGpus({
  devices,
  held,
  wishes,
}: GpuAllocation): Map<string, readonly string[]> {
  const given = new Map<string, readonly string[]>();
  const free = new Set(devices.filter((device) => !held.has(device)));
  for (const { among, count, podId } of wishes) {
    const gpus = among ?? [...free].slice(0, count);
    const isEnough = gpus.length >= count && gpus.every((gpu) => free.has(gpu));
    if (isEnough) {
      given.set(podId, gpus);
      for (const gpu of gpus) free.delete(gpu);
    } else if (!among) break;
  }
  return given;
}
