// Memory of a device that nobody gives back: held after the process of a job is gone, or growing
// from job to job. Pure; in a container nvidia-smi names no processes, so only bytes are judged.

export interface HeldMemory {
  /** Now in use on the device. */
  usedBytes: number | undefined;
  /** In use before a process of ours was on it. */
  baselineBytes: number;
  /** Processes of ours that run on it. */
  ownProcesses: number;
  /** What drivers and neighbours may take beside: 256 MiB unless told. */
  toleranceBytes?: number;
}

const TOLERANCE_BYTES = 256 * 2 ** 20;

/** Bytes over the baseline that no process of ours can be holding; 0 where that cannot be said. */
export function findHeldBytes(memory: HeldMemory): number {
  const { usedBytes, baselineBytes, ownProcesses, toleranceBytes = TOLERANCE_BYTES } = memory;
  if (usedBytes === undefined || ownProcesses > 0) return 0;
  const held = usedBytes - baselineBytes;
  return held > toleranceBytes ? held : 0;
}

export interface MemoryGrowth {
  /** In use after each of the last jobs of this process, newest last. */
  afterJobs: readonly number[];
  /** After its first job: models are loaded by then. */
  firstBytes: number | undefined;
}

export interface GrowthPolicy {
  /** Jobs in a row that must each have left more behind. */
  jobs: number;
  /** What one job must leave behind to count, bytes. */
  minBytesPerJob: number;
  /** Growth since the first job from which the process is to be replaced; undefined: never. */
  recycleAtBytes?: number | undefined;
}

export const DEFAULT_GROWTH_POLICY: GrowthPolicy = { jobs: 5, minBytesPerJob: 2 ** 20 };

export type GrowthVerdict =
  | { name: 'steady' }
  /** Each of the last jobs left more behind. */
  | { name: 'growing'; bytesPerJob: number; grownBytes: number }
  /** Past the limit: replace the process between jobs. */
  | { name: 'recycle'; grownBytes: number };

export const NO_GROWTH: MemoryGrowth = { afterJobs: [], firstBytes: undefined };

/** Notes what is in use after one more job of the same process. */
export function noteJobMemory(
  growth: MemoryGrowth,
  usedBytes: number,
  policy: GrowthPolicy,
): MemoryGrowth {
  return {
    firstBytes: growth.firstBytes ?? usedBytes,
    // One more than the steps that are judged.
    afterJobs: [...growth.afterJobs, usedBytes].slice(-(policy.jobs + 1)),
  };
}

export function judgeGrowth(growth: MemoryGrowth, policy: GrowthPolicy): GrowthVerdict {
  const { afterJobs, firstBytes = 0 } = growth;
  const last = afterJobs.at(-1);
  const first = afterJobs[0];
  if (last === undefined || first === undefined) return { name: 'steady' };
  const grownBytes = last - firstBytes;
  if (policy.recycleAtBytes !== undefined && grownBytes >= policy.recycleAtBytes) {
    return { name: 'recycle', grownBytes };
  }
  const steps = afterJobs.slice(1).map((bytes, place) => bytes - (afterJobs[place] ?? bytes));
  const isGrowing =
    steps.length >= policy.jobs && steps.every((bytes) => bytes >= policy.minBytesPerJob);
  if (!isGrowing) return { name: 'steady' };
  return { name: 'growing', bytesPerJob: Math.round((last - first) / steps.length), grownBytes };
}
