// Who gets which GPUs. Pure: it is given what there is, what is held, and who waits.

export interface GpuWish {
  podId: string;
  count: number;
  /** UUIDs of the only ones that do, all of them; null: it does not matter which. */
  among: readonly string[] | null;
}

export interface GpuAllocation {
  /** UUIDs of all GPUs of the type. */
  devices: readonly string[];
  held: ReadonlySet<string>;
  /** For this type; whoever waits longest comes first. */
  wishes: readonly GpuWish[];
}

/**
 * What each of them gets; who gets nothing is left out. Who takes any GPUs and has to wait for enough of
 * them is not overtaken, or many small wishes would keep a large one waiting for ever; who waits for
 * certain ones holds up nobody.
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
