// Reads the samples of nvidia-smi, and sums them up for a worker process. Pure.
import type { GpuFigures } from './usage-meter.ts';

/** In this order in each line. */
export const DEVICE_FIELDS = ['uuid', 'memory.used', 'utilization.gpu', 'power.draw'] as const;
export const PROCESS_FIELDS = ['gpu_uuid', 'pid', 'used_memory'] as const;

/** What a device does not tell is undefined. */
export interface DeviceSample {
  uuid: string;
  /** Of all processes. */
  usedBytes: number | undefined;
  /** 0 to 1. */
  utilization: number | undefined;
  powerWatts: number | undefined;
}

/** Memory of one process on one device. */
export interface ProcessSample {
  uuid: string;
  pid: number;
  usedBytes: number;
}

/** Larger figures are errors of the driver: some report the largest number of 32 or 64 bits. */
const MOST = { memoryMib: 2 ** 30, percent: 100, watts: 10_000, pid: 2 ** 31 } as const;
const MAX_UUID_CHARS = 64;

/** Undefined if the line is no sample. */
export function parseDeviceSample(line: string): DeviceSample | undefined {
  const [uuid, memory, utilization, power, ...more] = splitLine(line);
  if (uuid === undefined || power === undefined || more.length > 0) return undefined;
  const usedMib = readFigure(memory, MOST.memoryMib);
  const percent = readFigure(utilization, MOST.percent);
  return {
    uuid,
    usedBytes: usedMib === undefined ? undefined : usedMib * 2 ** 20,
    utilization: percent === undefined ? undefined : percent / 100,
    powerWatts: readFigure(power, MOST.watts),
  };
}

/** Undefined if the line is no sample, or the driver does not tell the memory of the process. */
export function parseProcessSample(line: string): ProcessSample | undefined {
  const [uuid, process, memory, ...more] = splitLine(line);
  const pid = readFigure(process, MOST.pid);
  const usedMib = readFigure(memory, MOST.memoryMib);
  if (uuid === undefined || more.length > 0) return undefined;
  if (pid === undefined || !Number.isInteger(pid) || usedMib === undefined) return undefined;
  return { uuid, pid, usedBytes: usedMib * 2 ** 20 };
}

function splitLine(line: string): string[] {
  const fields = line.split(',').map((field) => field.trim());
  const [uuid = ''] = fields;
  const isUuid = /^(?:GPU|MIG)-[\w/-]+$/.test(uuid) && uuid.length <= MAX_UUID_CHARS;
  return isUuid ? fields : [];
}

/** `[N/A]`, `[Not Supported]` and the like are no figures. */
function readFigure(text: string | undefined, most: number): number | undefined {
  if (text === undefined || !/^\d+(?:\.\d+)?$/.test(text)) return undefined;
  const value = Number(text);
  return value <= most ? value : undefined;
}

export interface WorkerSamples {
  /** Number of devices of the worker process. */
  devices: number;
  /** Those that have a recent sample. A MIG instance has none: its GPU's figures are not its own. */
  samples: readonly DeviceSample[];
  /** Device memory of the process and its children; undefined if nvidia-smi does not list them. */
  processBytes: number | undefined;
  validMs: number;
}

/** A sum exists only if each device has the figure. */
export function sumSamples(worker: WorkerSamples): GpuFigures {
  const { devices, processBytes, samples, validMs } = worker;
  const sum = (read: (sample: DeviceSample) => number | undefined): number | undefined => {
    const values = samples.map(read).filter((value) => value !== undefined);
    return values.length < devices ? undefined : values.reduce((total, value) => total + value, 0);
  };
  const utilization = sum((sample) => sample.utilization);
  return {
    vramBytes: processBytes ?? sum((sample) => sample.usedBytes),
    vramScope: processBytes === undefined ? 'devices' : 'process',
    utilization: utilization === undefined ? undefined : utilization / devices,
    powerWatts: sum((sample) => sample.powerWatts),
    validMs,
  };
}
