// What can be had and what it costs: GPU types and CPU flavours, as the catalogue shows them.
import { z } from 'zod';

export const gpuType = z.object({
  id: z.string(),
  name: z.string(),
  memory: z.number().describe('GB of each'),
  price: z.number().describe('USD an hour for one'),
  total: z.int().describe('How many the engine has'),
  available: z.int().describe('How many of them no pod holds now'),
});
export type GpuType = z.infer<typeof gpuType>;

export const cpuFlavor = z.object({
  id: z.string(),
  name: z.string(),
  vcpuCounts: z.array(z.int()).describe('How many a pod may ask for'),
  maxMemory: z.int().describe('GB that a pod may ask for, at most'),
  vcpuPrice: z.number().describe('USD an hour for one vCPU'),
  memoryPrice: z.number().describe('USD an hour for one GB of memory'),
});
export type CpuFlavor = z.infer<typeof cpuFlavor>;

export const gpuTypeList = z.object({ gpus: z.array(gpuType), cursor: z.string().exactOptional() });
export const cpuFlavorList = z.object({
  cpus: z.array(cpuFlavor),
  cursor: z.string().exactOptional(),
});
