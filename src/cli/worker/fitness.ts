// Whether this machine is fit for a worker, looked at once before anything is started. What a handler
// wants to have checked is run with it, in its threads.
import { detectDevices } from '../../worker/gpu/detect.ts';
import { judgeSystem, measureSystem, type SystemLimits } from '../../worker/system-checks.ts';
import { UnfitError } from '../command.ts';
import { readVariable } from '../config.ts';
import { UsageError } from '../options.ts';
import { createTerminalLog } from '../terminal-log.ts';
import { openLink } from './platform-link.ts';
import { readRunPodLimits } from './runpod.ts';
import type { WorkerFlags } from './worker-flags.ts';

/** Tells the platform where it hears such things. @throws UnfitError */
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
  await link.tellUnfit?.(check, reason);
  await link.close();
  throw new UnfitError(`check '${check}' failed: ${reason}`);
}

/** Those of the options, and where there are none, the platform's. @throws UsageError */
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
