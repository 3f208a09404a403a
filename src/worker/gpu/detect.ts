// Detects the devices of this machine: NVIDIA GPUs and their MIG instances, GPUs of other vendors,
// or else the processors. device-sets.ts assigns them to workers.
import { access } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../base/clock.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import type { FoundDevice } from './found-device.ts';
import { readNvidiaSmi, SMI_TIMEOUT_MS, type SmiReading } from './nvidia-smi.ts';
import type { SmiGpu, SmiReport } from './nvidia-smi-report.ts';
import { listOtherGpus } from './other-gpus.ts';
import { findProgram } from './program.ts';

export interface DetectOptions {
  /** Name or path. Default `nvidia-smi`. */
  nvidiaSmi?: string | undefined;
  /** The PATH of the environment. */
  searchPath: string;
  /** Default 10,000. */
  timeoutMs?: number;
  /** Default `/dev`. */
  deviceFolder?: string;
  clock?: Clock;
}

export interface Detection {
  /** GPUs, or one CPU device without GPUs. */
  devices: FoundDevice[];
  /** The processors, also if GPUs were found. */
  host: FoundDevice;
  nvidia: NvidiaState;
  /** The report of nvidia-smi, if any: the first reading of the devices' health. */
  reading: SmiReading | undefined;
  problems: DeviceProblem[];
}

export type NvidiaState =
  /** No nvidia-smi was found; nothing was started. */
  | { kind: 'absent' }
  | {
      kind: 'working';
      command: string;
      driverVersion: string | undefined;
      cudaVersion: string | undefined;
      gpus: number;
    }
  | { kind: 'failing'; command: string };

export interface DeviceProblem {
  /** `error`: the machine seems to have GPUs that cannot be used. */
  severity: 'error' | 'warning';
  /** One sentence. */
  text: string;
  remedy: string;
}

/** Never rejects: faults are listed as problems. */
export async function detectDevices(options: DetectOptions): Promise<Detection> {
  const { deviceFolder = '/dev', clock = systemClock } = options;
  const [nvidia, other] = await Promise.all([
    detectNvidia(options),
    listOtherGpus({ deviceFolder, clock }),
  ]);
  const { state, reading, problems } = nvidia;
  if (other.problem !== undefined) {
    const remedy = 'name the devices with --devices, or check `lspci` by hand';
    problems.push({ severity: 'warning', text: other.problem, remedy });
  }
  const host: FoundDevice = { device: describeProcessors(), vendor: 'host', pciBusId: '' };
  const gpus = [...nvidia.devices, ...other.devices];
  return { devices: gpus.length > 0 ? gpus : [host], host, nvidia: state, reading, problems };
}

function describeProcessors(): Device {
  const processors = cpus();
  const model = processors[0]?.model.trim() || process.arch;
  const name = `${processors.length} × ${model}`;
  return { kind: 'cpu', index: 0, uuid: 'cpu-0', name, memoryBytes: totalmem() };
}

interface NvidiaDetection {
  devices: FoundDevice[];
  state: NvidiaState;
  reading: SmiReading | undefined;
  problems: DeviceProblem[];
}

async function detectNvidia(options: DetectOptions): Promise<NvidiaDetection> {
  const { nvidiaSmi = 'nvidia-smi', searchPath, deviceFolder = '/dev' } = options;
  const command = await findProgram(nvidiaSmi, searchPath);
  if (command === undefined) {
    const hasDriver = await access(join(deviceFolder, 'nvidiactl')).then(
      () => true,
      () => false,
    );
    const isWanted = options.nvidiaSmi !== undefined || hasDriver;
    const problems = isWanted ? [explainAbsence(nvidiaSmi, hasDriver)] : [];
    return { devices: [], state: { kind: 'absent' }, reading: undefined, problems };
  }
  const { timeoutMs = SMI_TIMEOUT_MS, clock = systemClock } = options;
  return readDevices(await readNvidiaSmi({ command, timeoutMs, clock }), command);
}

function explainAbsence(nvidiaSmi: string, hasDriver: boolean): DeviceProblem {
  return {
    severity: 'error',
    text: hasDriver
      ? `an NVIDIA driver is installed, but the program ${nvidiaSmi} that lists its GPUs is not`
      : `program ${nvidiaSmi} not found`,
    remedy:
      'install nvidia-smi or give its path with --nvidia-smi; in a container, NVIDIA_DRIVER_CAPABILITIES must include `utility`',
  };
}

function readDevices(reading: SmiReading, command: string): NvidiaDetection {
  if (reading.kind === 'fault') {
    const { reason, remedy } = reading;
    const problem: DeviceProblem = { severity: 'error', text: reason, remedy };
    return { devices: [], state: { kind: 'failing', command }, reading, problems: [problem] };
  }
  const { report, lostBusIds } = reading;
  const { driverVersion, cudaVersion } = report;
  return {
    devices: listNvidiaDevices(report),
    state: { kind: 'working', command, driverVersion, cudaVersion, gpus: report.gpus.length },
    reading,
    problems: [
      ...(report.gpus.length + lostBusIds.length === 0 ? [NO_GPUS] : []),
      ...lostBusIds.map(explainLost),
      ...report.gpus.flatMap(listProblems),
    ],
  };
}

const NO_GPUS: DeviceProblem = {
  severity: 'warning',
  text: 'nvidia-smi works and lists no GPU',
  remedy: 'in a container, start it with its GPUs (`--gpus all`)',
};

/** One device for each MIG instance, and for each GPU without MIG. */
export function listNvidiaDevices(report: SmiReport): FoundDevice[] {
  return report.gpus
    .filter((gpu) => !gpu.isLost)
    .flatMap((gpu) => (gpu.isMigEnabled ? listMigDevices(gpu) : listWhole(gpu)));
}

function listWhole(gpu: SmiGpu): FoundDevice[] {
  const { index, uuid, name, pciBusId } = gpu;
  if (uuid === '') return [];
  const memoryBytes = gpu.memory.totalBytes ?? 0;
  const device: Device = { kind: 'gpu', index, uuid, name, memoryBytes };
  return [{ device, vendor: 'nvidia', pciBusId }];
}

function listMigDevices(gpu: SmiGpu): FoundDevice[] {
  return gpu.migDevices.flatMap((part) => {
    if (part.uuid === undefined) return [];
    const { gpuInstanceId, computeInstanceId } = part;
    const memoryBytes = part.memory.totalBytes ?? 0;
    const name = `${gpu.name} MIG ${part.index}`;
    const device: Device = { kind: 'gpu', index: gpu.index, uuid: part.uuid, name, memoryBytes };
    const place = { parentUuid: gpu.uuid, index: part.index, gpuInstanceId, computeInstanceId };
    return [{ device, vendor: 'nvidia' as const, pciBusId: gpu.pciBusId, mig: place }];
  });
}

function listProblems(gpu: SmiGpu): DeviceProblem[] {
  if (gpu.isLost) return [explainLost(gpu.pciBusId)];
  const label = `GPU ${gpu.index} (${gpu.name}, ${gpu.pciBusId})`;
  const problems: DeviceProblem[] = [];
  const note = (severity: DeviceProblem['severity'], text: string, remedy: string) =>
    problems.push({ severity, text: `${label} ${text}`, remedy });
  if (gpu.uuid === '') {
    note('error', 'reports no UUID and cannot be pinned', 'update the NVIDIA driver');
  }
  if (gpu.isMigEnabled && gpu.migDevices.length === 0) {
    const remedy = 'make instances (`nvidia-smi mig -cgi … -C`), or switch MIG off (`-mig 0`)';
    note('error', 'is in MIG mode and has no instances', remedy);
  }
  const unnamed = gpu.migDevices.filter(({ uuid }) => uuid === undefined).length;
  if (unnamed > 0) {
    note(
      'error',
      `has ${unnamed} MIG instances without a UUID`,
      'check whether `nvidia-smi -L` lists them',
    );
  }
  if (gpu.isRemapFailed) {
    note('error', 'has memory that cannot be repaired', 'replace the card');
  }
  if (gpu.recoveryAction !== undefined) {
    const isUrgent = /^(?:Reset|Reboot)$/.test(gpu.recoveryAction);
    const remedy = 'reset it (`nvidia-smi --gpu-reset`) when nothing runs on it, or reboot';
    note(isUrgent ? 'error' : 'warning', `asks for: ${gpu.recoveryAction}`, remedy);
  }
  if (gpu.isRetirementPending) {
    note('warning', 'has memory to retire', 'reset it when nothing runs on it, or reboot');
  }
  return problems;
}

function explainLost(pciBusId: string): DeviceProblem {
  return {
    severity: 'error',
    text: `the driver lost the GPU at ${pciBusId || 'an unknown address'}`,
    remedy: 'reboot the machine; if the GPU is lost again, check the card, its power and its slot',
  };
}
