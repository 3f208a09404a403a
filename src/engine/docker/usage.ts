// Computes a container's use of resources as shares of its limits. Processor time is measured
// between two samples.
import { z } from 'zod';
import type { ContainerStats } from '../engine.ts';

const NS_PER_MS = 1_000_000;

/** Engines omit unknown members: for a stopped container all of them. */
export const statsAnswer = z.object({
  read: z.string(),
  cpu_stats: z.object({
    cpu_usage: z.object({ total_usage: z.number() }),
    online_cpus: z.number().optional(),
  }),
  memory_stats: z.object({
    usage: z.number().optional(),
    limit: z.number().optional(),
    stats: z.record(z.string(), z.unknown()).nullish(),
  }),
});
export type StatsAnswer = z.infer<typeof statsAnswer>;

export interface UsageSample {
  /** Unix ms. */
  at: number;
  cpuNs: number;
}

export function readSample({ cpu_stats, read }: StatsAnswer): UsageSample {
  return { at: Date.parse(read), cpuNs: cpu_stats.cpu_usage.total_usage };
}

/**
 * `before`: an earlier sample, or the start, when nothing was used. `vcpus`: null without a limit.
 */
export function measureUsage(
  answer: StatsAnswer,
  before: UsageSample,
  vcpus: number | null,
): Omit<ContainerStats, 'gpus'> {
  const { cpu_stats, memory_stats } = answer;
  const { at, cpuNs } = readSample(answer);
  const ms = Math.max(1, at - before.at);
  const cpus = vcpus ?? cpu_stats.online_cpus ?? 1;
  return {
    cpu: toShare((cpuNs - before.cpuNs) / NS_PER_MS / ms / cpus),
    memory: toShare(countMemory(memory_stats) / (memory_stats.limit || Number.POSITIVE_INFINITY)),
  };
}

/** Excludes file caches that the kernel frees on demand. */
function countMemory({ stats, usage = 0 }: StatsAnswer['memory_stats']): number {
  // cgroup v1 prefixes the name with the whole tree.
  const cache = stats?.['total_inactive_file'] ?? stats?.['inactive_file'];
  return usage - (typeof cache === 'number' ? cache : 0);
}

function toShare(part: number): number {
  return Math.min(100, Math.max(0, part * 100));
}
