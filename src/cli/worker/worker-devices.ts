// Decides which devices the workers of this process get, from options and environment. worker/gpu
// detects and divides the devices.
import type { Log } from '../../base/log.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { type Detection, detectDevices } from '../../worker/gpu/detect.ts';
import { type DevicePlan, planDevices } from '../../worker/gpu/device-plan.ts';
import { DeviceChoiceError, parseGpusPerWorker } from '../../worker/gpu/device-sets.ts';
import { CommandError } from '../command.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
import { UsageError } from '../options.ts';

interface DeviceOptions {
  gpusPerWorker: string;
  devices: string | undefined;
  nvidiaSmi: string | undefined;
}

interface WorkerPlan {
  detection: Detection;
  plan: DevicePlan;
}

/** Logs problems that do not prevent a start. @throws UsageError, CommandError */
export async function planWorkers(options: DeviceOptions, log: Log): Promise<WorkerPlan> {
  const perWorker = readPerWorker(options.gpusPerWorker);
  const detection = await detect(options);
  return { detection, plan: planOrExplain({ detection, perWorker, options, log }) };
}

type UnpinnedOptions = Omit<DeviceOptions, 'gpusPerWorker'>;

/**
 * Returns the devices of an unpinned process: those of one vendor that its environment shows. Of
 * MIG instances CUDA uses only one. @throws UsageError, CommandError
 */
export async function findDevices(options: UnpinnedOptions, log: Log): Promise<Device[]> {
  const detection = await detect(options);
  const isDivided = detection.devices.some(({ mig }) => mig);
  const perWorker = isDivided ? 1 : 'all';
  const { sets } = planOrExplain({ detection, perWorker, options, log });
  return sets[0]?.devices ?? [];
}

/** Like `findDevices`, but a failing driver does not prevent the start. */
export async function findUsableDevices(log: Log): Promise<Device[]> {
  const wish = { devices: undefined, nvidiaSmi: undefined };
  try {
    return await findDevices(wish, log);
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    log.warn(`running without GPUs: ${error.message}`);
    return findDevices({ ...wish, devices: 'cpu' }, log);
  }
}

function detect({ nvidiaSmi }: UnpinnedOptions): Promise<Detection> {
  return detectDevices({ nvidiaSmi, searchPath: readVariable('PATH') ?? '' });
}

interface PlanRequest {
  detection: Detection;
  perWorker: number | 'all';
  options: UnpinnedOptions;
  log: Log;
}

function planOrExplain({ detection, log, options, perWorker }: PlanRequest): DevicePlan {
  const { devices: choice } = options;
  try {
    const environment = inheritEnvironment({});
    const plan = planDevices({ detection, perWorker, choice, environment });
    for (const note of plan.notes) log.warn(note);
    if (!plan.isNvidiaUnwanted) tellProblems(detection, log);
    const { idle } = plan;
    if (idle.length > 0) log.warn({ idle }, 'GPUs stay idle, too few for another worker');
    return plan;
  } catch (error) {
    if (!(error instanceof DeviceChoiceError)) throw error;
    const text = `${error.message}; ${error.remedy}`;
    throw choice === undefined ? new CommandError(text) : new UsageError(`--devices: ${text}`);
  }
}

/** @throws UsageError */
export function readPerWorker(given: string): number | 'all' {
  try {
    return parseGpusPerWorker(given);
  } catch (error) {
    if (!(error instanceof DeviceChoiceError)) throw error;
    throw new UsageError(`--gpus-per-worker: ${error.message}`);
  }
}

function tellProblems({ problems }: Detection, log: Log): void {
  for (const { remedy, severity, text } of problems) {
    log[severity === 'error' ? 'error' : 'warn']({ remedy }, text);
  }
}
