// Computes a container's use of resources as shares of its limits, from the figures of metrics.k8s.io. Pure.
import { z } from 'zod';
import type { ContainerStats } from '../engine.ts';
import { CONTAINER } from './manifests.ts';
import { readQuantity } from './quantities.ts';

const BYTES_PER_GB = 1_073_741_824;

export const usageAnswer = z.object({
  containers: z.array(
    z.object({ name: z.string(), usage: z.object({ cpu: z.string(), memory: z.string() }) }),
  ),
});

/** Undefined if the figures are not there yet. GPUs are not measured: the cluster does not tell which ones it gave. */
export function measureUsage(
  { containers }: z.infer<typeof usageAnswer>,
  limits: { vcpus: number; memoryGb: number },
): ContainerStats | undefined {
  const usage = containers.find(({ name }) => name === CONTAINER)?.usage;
  const cpu = readQuantity(usage?.cpu ?? '');
  const memory = readQuantity(usage?.memory ?? '');
  if (cpu === undefined || memory === undefined) return undefined;
  return {
    cpu: toShare(cpu / limits.vcpus),
    memory: toShare(memory / (limits.memoryGb * BYTES_PER_GB)),
    gpus: [],
  };
}

function toShare(part: number): number {
  return Math.min(100, Math.max(0, part * 100));
}
