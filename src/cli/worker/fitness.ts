// Checks once, before anything is started, whether this machine is fit for a worker. Checks that a
// handler registers run with the handler, in its threads.
import { detectDevices } from '../../worker/gpu/detect.ts';
import {
  judgeSystem,
  measureSystem,
  type SystemLimits,
} from '../../worker/health/system-checks.ts';
import { UnfitError } from '../command.ts';
import { readVariable } from '../config.ts';
import { UsageError } from '../options.ts';
import { createTerminalLog } from '../terminal-log.ts';
import { openLink } from './platform-link.ts';
import { readRunPodLimits } from './runpod.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** Reports a failed check to platforms that accept such reports. @throws UnfitError */
export async function checkMachine(values: WorkerFlags): Promise<void> {
  const limits = chooseLimits(values);
  if (Object.values(limits).every((limit) => limit === undefined)) return;
  const needsDriver = limits.needsGpus || limits.minCudaVersion !== undefined;
  const { nvidiaSmi } = values;
  const searchPath = readVariable('PATH') ?? '';
  const nvidia = needsDriver
    ? (await detectDevices({ nvidiaSmi, searchPath })).nvidia
    : { kind: 'absent' as const };
  const failed = judgeSystem(await measureSystem(process.cwd(), nvidia), limits);
  if (!failed) return;
  const { check, reason } = failed;
  const link = await openLink(values, createTerminalLog(values.logLevel));
  await link.reportUnfit?.(check, reason);
  await link.close();
  throw new UnfitError(`check '${check}' failed: ${reason}`);
}

/** Returns the limits of the options; for those not given, the platform's. @throws UsageError */
function chooseLimits({ minCuda, minDisk, minMemory, url }: WorkerFlags): SystemLimits {
  const platform = url === '' ? readRunPodLimits() : {};
  const minCudaVersion = minCuda ?? platform.minCudaVersion;
  if (minCudaVersion !== undefined && !/^\d+(\.\d+)*$/.test(minCudaVersion)) {
    const name = minCuda === undefined ? 'RUNPOD_MIN_CUDA_VERSION' : '--min-cuda';
    throw new UsageError(`${name}: must be a version such as 12.4, got ${minCudaVersion}`);
  }
  return {
    minMemoryBytes: minMemory === undefined ? platform.minMemoryBytes : minMemory * 2 ** 20,
    minDiskPercent: minDisk ?? platform.minDiskPercent,
    minCudaVersion,
    needsGpus: minCuda !== undefined || platform.needsGpus ? true : undefined,
  };
}
