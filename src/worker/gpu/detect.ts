// Detects the devices of this machine: NVIDIA GPUs and their MIG instances, GPUs of other vendors,
// or else the processors. device-sets.ts assigns them to workers.
import { access, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../base/clock.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { readNvidiaSmi, SMI_TIMEOUT_MS, type SmiReading } from './nvidia-smi.ts';
import { compareBusIds, normalizeBusId, type SmiGpu, type SmiReport } from './nvidia-smi-report.ts';
import { findProgram, runProgram } from './program.ts';

export type Vendor = 'nvidia' | 'amd' | 'intel' | 'host';

/** A detected device, with more details than the platform gets. */
export interface FoundDevice {
  /**
   * As sent to the platform and to handlers. `index` counts the GPUs of one vendor by PCI bus ID,
   * from 0; a MIG device has the index of its GPU.
   */
  device: Device;
  vendor: Vendor;
  /** Empty for the host's processors. */
  pciBusId: string;
  /** Set for a MIG device. */
  mig?: MigInstance;
}

interface MigInstance {
  parentUuid: string;
  /** Index within its GPU, as in `nvidia-smi -L`. */
  index: number;
  gpuInstanceId: number;
  computeInstanceId: number;
}

interface DetectOptions {
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

const require = createRequire(import.meta.url);

const LIBRARY_TIMEOUT_MS = 5_000;
/** A display chip without memory of its own cannot run jobs. */
const MIN_MEMORY_BYTES = 2 ** 30;

const LIBRARY_SCRIPT = `require(process.argv[1]).graphics()
  .then(({ controllers }) => process.stdout.write(JSON.stringify(controllers)));`;

interface OtherGpusOptions {
  /** Folder of device files: `/dev`. */
  deviceFolder: string;
  /** Folder with the kernel's PCI devices. Default `/sys/bus/pci/devices`. */
  pciFolder?: string;
  clock: Clock;
}

interface OtherGpus {
  devices: FoundDevice[];
  /** Why the list may be incomplete. */
  problem: string | undefined;
}

/**
 * GPUs of vendors other than NVIDIA, by systeminformation, which reads lspci. The library runs programs synchronously, so
 * it gets a separate process with a deadline. Never rejects. Starts nothing if the device files include neither `dri`
 * nor `kfd`.
 */
export async function listOtherGpus(options: OtherGpusOptions): Promise<OtherGpus> {
  const { deviceFolder, pciFolder = '/sys/bus/pci/devices', clock } = options;
  const nodes = await Promise.all(
    ['dri', 'kfd'].map((name) =>
      access(join(deviceFolder, name)).then(
        () => true,
        () => false,
      ),
    ),
  );
  if (!nodes.includes(true)) return { devices: [], problem: undefined };
  const args = ['-e', LIBRARY_SCRIPT, require.resolve('systeminformation')];
  const end = await runProgram({
    file: process.execPath,
    args,
    timeoutMs: LIBRARY_TIMEOUT_MS,
    clock,
  });
  if (end.kind === 'exited' && end.code === 0) return readControllers(end.stdout, pciFolder);
  const why =
    end.kind === 'timeout' ? `no answer within ${LIBRARY_TIMEOUT_MS} ms` : `it ${end.kind}`;
  return { devices: [], problem: `systeminformation could not list graphics cards: ${why}` };
}

interface Controller {
  vendor: Vendor;
  name: string;
  busId: string;
  memoryBytes: number;
}

/** Reads the JSON of systeminformation's `graphics().controllers`. */
async function readControllers(json: string, pciFolder: string): Promise<OtherGpus> {
  const listed = parseList(json);
  if (!listed) {
    return { devices: [], problem: 'systeminformation returned an unknown format' };
  }
  const controllers = listed.flatMap(readController);
  controllers.sort((one, other) => compareBusIds(one.busId, other.busId));
  const counts = new Map<Vendor, number>();
  const devices: FoundDevice[] = [];
  for (const { vendor, name, busId, memoryBytes: reported } of controllers) {
    // Small ones are counted too, because the vendor's own numbers include them.
    const index = counts.get(vendor) ?? 0;
    counts.set(vendor, index + 1);
    const memoryBytes = (await readVram(join(pciFolder, busId.slice(4)))) ?? reported;
    if (memoryBytes < MIN_MEMORY_BYTES) continue;
    const uuid = `${vendor}-${busId}`;
    const device: Device = { kind: 'gpu', index, uuid, name, memoryBytes };
    devices.push({ device, vendor, pciBusId: busId });
  }
  return { devices, problem: undefined };
}

/** From AMD's driver: lspci shows only the memory window of the host, often 256 MB. */
async function readVram(folder: string): Promise<number | undefined> {
  try {
    return Number(await readFile(join(folder, 'mem_info_vram_total'), 'utf8')) || undefined;
  } catch {
    return undefined;
  }
}

function parseList(json: string): unknown[] | undefined {
  try {
    const list: unknown = JSON.parse(json);
    return Array.isArray(list) ? list : undefined;
  } catch {
    return undefined;
  }
}

function readController(entry: unknown): Controller[] {
  if (typeof entry !== 'object' || entry === null) return [];
  const fields = new Map<string, unknown>(Object.entries(entry));
  const vendor = readVendor(String(fields.get('vendor') ?? ''));
  if (vendor === undefined) return [];
  const memory = fields.get('memoryTotal') ?? fields.get('vram');
  // Memory borrowed from the host does not belong to the card.
  const isOwn = fields.get('vramDynamic') !== true;
  return [
    {
      vendor,
      name: String(fields.get('model') || `${vendor} GPU`),
      busId: normalizeBusId(String(fields.get('busAddress') ?? fields.get('pciBus') ?? '')),
      memoryBytes: isOwn && typeof memory === 'number' ? memory * 2 ** 20 : 0,
    },
  ];
}

function readVendor(text: string): Vendor | undefined {
  if (/advanced micro devices|\bamd\b|\bati\b/i.test(text)) return 'amd';
  return /intel/i.test(text) ? 'intel' : undefined;
}
