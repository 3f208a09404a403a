// What a container uses, as a share of what it may use. Processor time is counted between two looks.
import { z } from 'zod';
import type { ContainerStats } from '../engine.ts';

const NS_PER_MS = 1_000_000;

/** Engines leave out what they do not know, all of it for a container that does not run. */
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

/** `before`: of an earlier look, or of the start, where nothing was used. `vcpus`: null without a limit. */
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

/** Without what the kernel keeps of files for as long as nobody needs the room. */
function countMemory({ stats, usage = 0 }: StatsAnswer['memory_stats']): number {
  // cgroup v1 says it with the whole tree's name.
  const cache = stats?.['total_inactive_file'] ?? stats?.['inactive_file'];
  return usage - (typeof cache === 'number' ? cache : 0);
}

function toShare(part: number): number {
  return Math.min(100, Math.max(0, part * 100));
}
