// This machine as pods use it: its engine, what pods may hold, and the folders of workers.
import { join } from 'node:path';
import type { Amounts } from '../control/limits/capacity.ts';
import type { Engine } from '../engine/engine.ts';
import type { PodUser } from '../engine/process/pod-user.ts';
import { openEngine } from './compute/open-engine.ts';
import { WorkerFolders } from './compute/worker-folders.ts';
import { GpuUsage } from './gpu-usage.ts';
import { measureLimits } from './machine-limits.ts';
import type { CompleteOptions } from './platform-options.ts';

export interface Machine {
  /** Undefined: pods cannot run. */
  engine: Engine | undefined;
  limits: Amounts | undefined;
  /** For an engine without state volumes. */
  workerFolders: WorkerFolders | undefined;
}

/** `openFence`: for an engine that several nodes share. @throws PlatformOptionError */
export async function openMachine(
  { compute, dataFolder, log }: CompleteOptions,
  podUser: PodUser | undefined,
  openFence?: () => () => void,
): Promise<Machine> {
  if (dataFolder === undefined) {
    return { engine: undefined, limits: undefined, workerFolders: undefined };
  }
  const { capacity, containment, devices = [], dockerHost, engine: kind, kubernetes } = compute;
  const { workerEnvironment } = compute;
  const limits = measureLimits(capacity, { engine: kind, dataFolder });
  const usage = new GpuUsage('nvidia-smi');
  const measureGpus = (uuids: readonly string[]) => usage.measure(uuids);
  const parts = { kind, dockerHost, kubernetes, dataFolder, devices, measureGpus, log };
  const engine = await openEngine({ ...parts, podUser, containment, openFence, workerEnvironment });
  const workerFolders =
    kind === 'process'
      ? new WorkerFolders({ path: join(dataFolder, 'workers'), user: podUser, log })
      : undefined;
  return { engine, limits, workerFolders };
}
