// What can be had and what it costs: GPU types and CPU flavours, as the catalogue shows them.
import { z } from 'zod';

export const gpuType = z.object({
  id: z.string(),
  name: z.string(),
  /** GB of each. */
  memory: z.number(),
  /** USD an hour for one. */
  price: z.number(),
  /** How many the engine has, and how many of them no pod holds now. */
  total: z.int(),
  available: z.int(),
});
export type GpuType = z.infer<typeof gpuType>;

export const cpuFlavor = z.object({
  id: z.string(),
  name: z.string(),
  /** That a pod may ask for. */
  vcpuCounts: z.array(z.int()),
  /** GB that a pod may ask for, at most. */
  maxMemory: z.int(),
  /** USD an hour for one vCPU, and for one GB of memory. */
  vcpuPrice: z.number(),
  memoryPrice: z.number(),
});
export type CpuFlavor = z.infer<typeof cpuFlavor>;

export const gpuTypeList = z.object({ gpus: z.array(gpuType), cursor: z.string().exactOptional() });
export const cpuFlavorList = z.object({
  cpus: z.array(cpuFlavor),
  cursor: z.string().exactOptional(),
});
