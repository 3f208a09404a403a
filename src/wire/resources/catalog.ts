// Schemas of the catalogue: GPU types and CPU flavours with their prices.
import { z } from 'zod';

export const gpuType = z.object({
  id: z.string(),
  name: z.string(),
  memory: z.number().describe('GB of each GPU'),
  price: z.number().describe('USD per hour for one GPU'),
  total: z.int().describe('Number of these GPUs that the engine has'),
  available: z.int().describe('Number of these GPUs that no pod holds now'),
});
export type GpuType = z.infer<typeof gpuType>;

export const cpuFlavor = z.object({
  id: z.string(),
  name: z.string(),
  vcpuCounts: z.array(z.int()).describe('Allowed numbers of vCPUs'),
  maxMemory: z.int().describe('Most GB of memory for one pod'),
  vcpuPrice: z.number().describe('USD per hour for one vCPU'),
  memoryPrice: z.number().describe('USD per hour for one GB of memory'),
});
export type CpuFlavor = z.infer<typeof cpuFlavor>;

export const gpuTypeList = z.object({ gpus: z.array(gpuType), cursor: z.string().exactOptional() });
export const cpuFlavorList = z.object({
  cpus: z.array(cpuFlavor),
  cursor: z.string().exactOptional(),
});
