// The machine of a worker: its checks before the start, the devices that the workers of this process get, and the samples of
// its GPUs for the usage of jobs (`--gpu-sample-ms`).
import type { Log } from '../../base/log.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { type Detection, detectDevices } from '../../worker/gpu/detect.ts';
import { type DevicePlan, planDevices } from '../../worker/gpu/device-plan.ts';
import { DeviceChoiceError, parseGpusPerWorker } from '../../worker/gpu/device-sets.ts';
import { type FedWorker, GpuUsageFeed } from '../../worker/gpu/gpu-usage-feed.ts';
import { findProgram } from '../../worker/gpu/program.ts';
import {
  judgeSystem,
  measureSystem,
  type SystemLimits,
} from '../../worker/health/system-checks.ts';
import type { Worker } from '../../worker/worker.ts';
import { CommandError, UnfitError } from '../command.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
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

/** Below this, the driver returns the same figures again. */
const MIN_SAMPLE_MS = 100;

type SamplingValues = Pick<WorkerFlags, 'gpuSampleMs' | 'nvidiaSmi'>;

interface Sampled {
  detection: Detection;
  workers: readonly FedWorker[];
  values: SamplingValues;
  log: Log;
}

/** @throws UsageError */
export function checkGpuSampling({ gpuSampleMs }: SamplingValues): void {
  if (gpuSampleMs > 0 && gpuSampleMs < MIN_SAMPLE_MS) {
    throw new UsageError(
      `--gpu-sample-ms: must be 0 or at least ${MIN_SAMPLE_MS}, got ${gpuSampleMs}`,
    );
  }
}

interface SingleFeed {
  devices: readonly Device[];
  worker: Worker;
  values: SamplingValues;
  log: Log;
}

/** For a worker process without a supervisor. Undefined as for `createGpuFeed`. */
export async function createSingleGpuFeed({ devices, log, values, worker }: SingleFeed) {
  const { gpuSampleMs: everyMs, nvidiaSmi = 'nvidia-smi' } = values;
  const uuids = devices.map(({ uuid }) => uuid);
  if (everyMs === 0 || !uuids.some((uuid) => /^(?:GPU|MIG)-/.test(uuid))) return undefined;
  const command = await findProgram(nvidiaSmi, readVariable('PATH') ?? '');
  if (command === undefined) return undefined;
  const noteGpuFigures = worker.noteGpuFigures.bind(worker);
  const workers = [{ uuids, pid: process.pid, noteGpuFigures }];
  return new GpuUsageFeed({ command, workers, everyMs, log });
}

/** Undefined if the workers have no NVIDIA GPU, or sampling is off. */
export function createGpuFeed({ detection, log, values, workers }: Sampled) {
  const { devices, nvidia } = detection;
  const { gpuSampleMs: everyMs } = values;
  const readable = new Set(
    devices.filter(({ vendor }) => vendor === 'nvidia').map(({ device }) => device.uuid),
  );
  const fed = workers.filter(({ uuids }) => uuids.some((uuid) => readable.has(uuid)));
  if (nvidia.kind !== 'working' || everyMs === 0 || fed.length === 0) return undefined;
  return new GpuUsageFeed({ command: nvidia.command, workers: fed, everyMs, log });
}

interface WorkerPlan {
  detection: Detection;
  plan: DevicePlan;
}

/** Logs problems that do not prevent a start. @throws UsageError, CommandError */
export async function planWorkers(
  options: UnpinnedOptions & Pick<WorkerFlags, 'gpusPerWorker'>,
  log: Log,
): Promise<WorkerPlan> {
  const perWorker = readPerWorker(options.gpusPerWorker);
  const detection = await detect(options);
  return { detection, plan: planOrExplain({ detection, perWorker, options, log }) };
}

type UnpinnedOptions = Pick<WorkerFlags, 'devices' | 'nvidiaSmi'>;

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

interface Parked {
  devices: readonly Device[];
  workerId: string;
  values: Pick<WorkerFlags, 'gpuLedger' | 'nvidiaSmi' | 'parkMemory'>;
  log: Log;
}

/** Undefined if the worker cannot be parked: it has no GPU or several, or `--park-memory` is 0. */
export async function openParkingMachine({ devices, log, values, workerId }: Parked) {
  const [device, ...others] = devices;
  if (device?.kind !== 'gpu' || others.length > 0 || values.parkMemory === 0) return undefined;
  const [{ LedgerMachine, readMemory, shareHostLimit }, { LedgerFile, locateLedger }] =
    await Promise.all([
      import('../../worker/parking/machine.ts'),
      import('../../worker/parking/ledger-file.ts'),
    ]);
  const { gpuLedger, nvidiaSmi = 'nvidia-smi', parkMemory } = values;
  try {
    const folder = locateLedger(gpuLedger);
    const program = await findProgram(nvidiaSmi, readVariable('PATH') ?? '');
    return new LedgerMachine({
      ledger: new LedgerFile(folder),
      workerId,
      device: device.uuid,
      hostLimitBytes:
        parkMemory === undefined ? await shareHostLimit(folder) : parkMemory * 2 ** 30,
      readMemory: async () =>
        program === undefined ? undefined : readMemory(program, device.uuid),
    });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    log.warn({ reason }, 'models cannot be parked');
    return undefined;
  }
}
