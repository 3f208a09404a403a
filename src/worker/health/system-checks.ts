// Checks the machine before a worker takes jobs: memory, disk, responding GPUs, driver version.
// Measuring is separate from judging.
import { statfs } from 'node:fs/promises';
import type { NvidiaState } from '../gpu/detect.ts';

/** A missing limit is not checked. */
export interface SystemLimits {
  minMemoryBytes?: number | undefined;
  /** Free disk space in percent. */
  minDiskPercent?: number | undefined;
  /** Such as 12.4. */
  minCudaVersion?: string | undefined;
  /** If nvidia-smi exists, it must list GPUs. */
  needsGpus?: boolean | undefined;
}

export interface SystemFacts {
  /** Memory that the process may still use, limits of its container included. */
  memoryBytes: number;
  diskPercent: number;
  nvidia: NvidiaState;
}

interface FailedCheck {
  check: 'memory' | 'disk' | 'gpu' | 'cuda';
  reason: string;
}

/** `path` is on the disk to check. */
export async function measureSystem(path: string, nvidia: NvidiaState): Promise<SystemFacts> {
  const { bavail, blocks } = await statfs(path);
  const diskPercent = blocks === 0 ? 100 : (100 * bavail) / blocks;
  return { memoryBytes: process.availableMemory(), diskPercent, nvidia };
}

/** Returns the first limit that is not met. */
export function judgeSystem(facts: SystemFacts, limits: SystemLimits): FailedCheck | undefined {
  const { diskPercent, memoryBytes, nvidia } = facts;
  const { minCudaVersion, minDiskPercent, minMemoryBytes, needsGpus } = limits;
  if (minMemoryBytes !== undefined && memoryBytes < minMemoryBytes) {
    const reason = `${inGb(memoryBytes)} of memory available, ${inGb(minMemoryBytes)} required`;
    return { check: 'memory', reason };
  }
  if (minDiskPercent !== undefined && diskPercent < minDiskPercent) {
    const reason = `${diskPercent.toFixed(1)} % of the disk free, ${minDiskPercent} % required`;
    return { check: 'disk', reason };
  }
  if (needsGpus && nvidia.kind === 'failing') {
    return { check: 'gpu', reason: 'nvidia-smi fails, no GPU can be used' };
  }
  if (needsGpus && nvidia.kind === 'working' && nvidia.gpus === 0) {
    return { check: 'gpu', reason: 'nvidia-smi shows no GPU' };
  }
  const cuda = nvidia.kind === 'working' ? nvidia.cudaVersion : undefined;
  if (minCudaVersion !== undefined && cuda !== undefined && isOlder(cuda, minCudaVersion)) {
    return {
      check: 'cuda',
      reason: `the driver supports CUDA ${cuda}, ${minCudaVersion} required`,
    };
  }
  return undefined;
}

function isOlder(version: string, least: string): boolean {
  const [parts, wanted] = [version, least].map((text) => text.split('.').map(Number));
  for (const [index, part] of (wanted ?? []).entries()) {
    const own = parts?.[index] ?? 0;
    if (own !== part) return own < part;
  }
  return false;
}

function inGb(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(2)} GB`;
}
