// Parses the XML of `nvidia-smi -q -x`. Only this file knows the element names of drivers 450 to
// 590; docs/gpus.md names the sources.

/** `undefined` in any field: the card or the driver does not report it. */
export interface SmiReport {
  driverVersion: string | undefined;
  /** Newest CUDA version that the driver supports. */
  cudaVersion: string | undefined;
  /** In the order of PCI bus IDs, as CUDA numbers them with CUDA_DEVICE_ORDER=PCI_BUS_ID. */
  gpus: SmiGpu[];
}

export interface SmiGpu {
  /** Index in the order of PCI bus IDs, from 0: the number for `nvidia-smi -i` and CUDA. */
  index: number;
  /** N of /dev/nvidiaN; may differ from the index. */
  minorNumber: number | undefined;
  /** Empty if the GPU does not report it (any more). */
  uuid: string;
  name: string;
  pciBusId: string;
  /** The driver has lost the card; the other fields are meaningless. */
  isLost: boolean;
  memory: SmiMemory;
  /** Percent, 0 to 100; MIG devices share one value that is not reported. */
  utilization: number | undefined;
  temperatureC: number | undefined;
  /** Temperature at which the card slows itself down. */
  slowdownC: number | undefined;
  /** Uncorrected memory errors since the driver was loaded. */
  eccVolatile: number | undefined;
  /** Uncorrected memory errors since the card was made. */
  eccAggregate: number | undefined;
  /** Pages or rows will be retired at the next reset. */
  isRetirementPending: boolean;
  /** Memory that can no longer be repaired by retiring rows. */
  isRemapFailed: boolean;
  /** Action that the driver requests: `Reset`, `Reboot`, `Drain and Reset`, `Drain P2P`. */
  recoveryAction: string | undefined;
  isMigEnabled: boolean;
  migDevices: SmiMigDevice[];
  processes: SmiProcess[];
}

export interface SmiMemory {
  totalBytes: number | undefined;
  usedBytes: number | undefined;
}

interface SmiMigDevice {
  /** Index within its GPU, from 0. */
  index: number;
  /** `MIG-…`; most drivers report it only in `nvidia-smi -L`. */
  uuid: string | undefined;
  gpuInstanceId: number;
  computeInstanceId: number;
  memory: SmiMemory;
  eccVolatile: number | undefined;
}

/** In a container only the container's own processes are listed, often none. */
interface SmiProcess {
  pid: number;
  usedBytes: number | undefined;
  gpuInstanceId: number | undefined;
}

/** The output is not nvidia-smi's XML. */
export class SmiOutputError extends Error {
  override readonly name = 'SmiOutputError';
}

/** @throws SmiOutputError */
export async function parseReport(xml: string): Promise<SmiReport> {
  const log = readChild(await parseXml(xml), 'nvidia_smi_log');
  if (typeof log !== 'object') throw new SmiOutputError('<nvidia_smi_log> is missing');
  const gpus = readList(log, 'gpu').map(readGpu);
  gpus.sort((one, other) => compareBusIds(one.pciBusId, other.pciBusId));
  return {
    driverVersion: readText(log, 'driver_version'),
    cudaVersion: readText(log, 'cuda_version'),
    gpus: gpus.map((gpu, index) => ({ ...gpu, index })),
  };
}

type Node = string | { [name: string]: unknown } | undefined;

/** Loaded only after nvidia-smi was found: most machines do not need the library. */
async function parseXml(xml: string): Promise<unknown> {
  const { XMLParser } = await import('fast-xml-parser');
  const lists = new Set(['gpu', 'mig_device', 'process_info']);
  const parser = new XMLParser({
    ignoreAttributes: false,
    attributeNamePrefix: '@',
    parseTagValue: false,
    processEntities: false,
    isArray: (name) => lists.has(name),
  });
  try {
    return parser.parse(xml, true);
  } catch (error) {
    throw new SmiOutputError(error instanceof Error ? error.message : String(error));
  }
}

function readGpu(gpu: Node): SmiGpu {
  const temperature = readChild(gpu, 'temperature');
  const ecc = readChild(gpu, 'ecc_errors');
  const uuid = readText(gpu, 'uuid');
  const mig = readChild(gpu, 'mig_devices');
  return {
    index: 0,
    minorNumber: readNumber(gpu, 'minor_number'),
    uuid: uuid?.startsWith('GPU-') ? uuid : '',
    name: readText(gpu, 'product_name') ?? 'NVIDIA GPU',
    pciBusId: normalizeBusId(readText(gpu, 'pci', 'pci_bus_id') ?? readText(gpu, '@id') ?? ''),
    isLost: isLost(gpu),
    memory: readMemory(gpu),
    utilization: readNumber(gpu, 'utilization', 'gpu_util'),
    temperatureC: readNumber(temperature, 'gpu_temp'),
    slowdownC: readSlowdown(temperature),
    eccVolatile: sumUncorrected(readChild(ecc, 'volatile')),
    eccAggregate: sumUncorrected(readChild(ecc, 'aggregate')),
    isRetirementPending:
      says('Yes', gpu, 'retired_pages', 'pending_retirement') ||
      says('Yes', gpu, 'retired_pages', 'pending_blacklist') ||
      says('Yes', gpu, 'remapped_rows', 'remapped_row_pending'),
    isRemapFailed:
      says('Yes', gpu, 'remapped_rows', 'remapped_row_failure') ||
      says('Yes', ecc, 'unrepairable_memory'),
    recoveryAction: readRecoveryAction(gpu),
    isMigEnabled: says('Enabled', gpu, 'mig_mode', 'current_mig'),
    migDevices: readList(mig, 'mig_device').map(readMigDevice),
    processes: readList(readChild(gpu, 'processes'), 'process_info').flatMap(readProcess),
  };
}

function readMigDevice(device: Node): SmiMigDevice {
  return {
    index: readNumber(device, 'index') ?? 0,
    uuid: readText(device, 'uuid'),
    gpuInstanceId: readNumber(device, 'gpu_instance_id') ?? 0,
    computeInstanceId: readNumber(device, 'compute_instance_id') ?? 0,
    memory: readMemory(device),
    eccVolatile: sumUncorrected(readChild(readChild(device, 'ecc_error_count'), 'volatile_count')),
  };
}

function readProcess(process: Node): SmiProcess[] {
  const pid = readNumber(process, 'pid');
  if (pid === undefined) return [];
  const usedBytes = readBytes(process, 'used_memory');
  return [{ pid, usedBytes, gpuInstanceId: readNumber(process, 'gpu_instance_id') }];
}

function readMemory(device: Node): SmiMemory {
  return {
    totalBytes: readBytes(device, 'fb_memory_usage', 'total'),
    usedBytes: readBytes(device, 'fb_memory_usage', 'used'),
  };
}

/** Cards up to Ampere report the temperature; later ones report the distance to it. */
function readSlowdown(temperature: Node): number | undefined {
  const absolute = readNumber(temperature, 'gpu_temp_slow_threshold');
  if (absolute !== undefined) return absolute;
  const now = readNumber(temperature, 'gpu_temp');
  const left = readNumber(temperature, 'gpu_temp_tlimit');
  const slowAt = readNumber(temperature, 'gpu_temp_slow_tlimit_threshold');
  if (now === undefined || left === undefined || slowAt === undefined) return undefined;
  return now + left - slowAt;
}

/** Ampere and later count by memory and kind; earlier cards report a total of double-bit errors. */
function sumUncorrected(counts: Node): number | undefined {
  if (typeof counts !== 'object') return undefined;
  const doubleBit = readNumber(counts, 'double_bit', 'total');
  if (doubleBit !== undefined) return doubleBit;
  const found = Object.keys(counts)
    .filter((name) => name.includes('_uncorrectable'))
    .map((name) => readNumber(counts, name))
    .filter((count) => count !== undefined);
  return found.length === 0 ? undefined : found.reduce((sum, count) => sum + count, 0);
}

function readRecoveryAction(gpu: Node): string | undefined {
  const action = readText(gpu, 'gpu_recovery_action');
  if (action !== undefined) return action === 'None' ? undefined : action;
  if (says('Yes', gpu, 'gpu_reset_status', 'reset_required')) return 'Reset';
  const isAdvised = says('Yes', gpu, 'gpu_reset_status', 'drain_and_reset_recommended');
  return isAdvised ? 'Drain and Reset' : undefined;
}

/** Some drivers still list a lost card, with the error in place of its values. */
function isLost(gpu: Node): boolean {
  const values = [
    readRaw(gpu, 'uuid'),
    readRaw(gpu, 'product_name'),
    readRaw(gpu, 'fb_memory_usage', 'total'),
    readRaw(gpu, 'temperature', 'gpu_temp'),
  ];
  return values.some((text) => text !== undefined && /GPU is lost|fallen off the bus/i.test(text));
}

/** Texts that stand for a missing value. */
const NO_VALUE =
  /^(?:$|\[?(?:N\/A|Not Supported|Not Available|Unknown Error|Unknown|None)\]?$|\[?ERR!|\[?GPU is lost|\[?GPU requires reset|\[?Insufficient Permissions|\[?Requested functionality)/i;

function readText(node: Node, ...path: string[]): string | undefined {
  const text = readRaw(node, ...path);
  // The action `None` of a healthy card is a value.
  if (text === undefined || (NO_VALUE.test(text) && text !== 'None')) return undefined;
  return text;
}

/** The number at the start of `45 C`, `2 %`, `0`. */
function readNumber(node: Node, ...path: string[]): number | undefined {
  const digits = /^-?\d+(?:\.\d+)?/.exec(readText(node, ...path) ?? '')?.[0];
  return digits === undefined ? undefined : Number(digits);
}

const UNITS: Readonly<Record<string, number>> = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** The bytes of `23034 MiB`. */
function readBytes(node: Node, ...path: string[]): number | undefined {
  const [, digits, unit = ''] = /^(\d+) ([KMG]iB|B)$/.exec(readText(node, ...path) ?? '') ?? [];
  const factor = UNITS[unit];
  return digits === undefined || factor === undefined ? undefined : Number(digits) * factor;
}

function says(word: string, node: Node, ...path: string[]): boolean {
  return readText(node, ...path) === word;
}

function readRaw(node: Node, ...path: string[]): string | undefined {
  let found = node;
  for (const name of path) found = readChild(found, name);
  return typeof found === 'string' ? found.trim() : undefined;
}

function readChild(node: unknown, name: string): Node {
  if (!isElement(node)) return undefined;
  const child = node[name];
  return typeof child === 'string' || isElement(child) ? child : undefined;
}

function readList(node: Node, name: string): Node[] {
  const list = isElement(node) ? node[name] : undefined;
  if (!Array.isArray(list)) return [];
  return list.filter((item) => typeof item === 'string' || isElement(item));
}

function isElement(node: unknown): node is { [name: string]: unknown } {
  return typeof node === 'object' && node !== null && !Array.isArray(node);
}

/**
 * `0000:01:00.0` and `00000000:01:00.0` are the same card: lower case, domain with eight digits.
 */
export function normalizeBusId(busId: string): string {
  const [, domain = '0', rest] =
    /^(?:([0-9a-f]+):)?([0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?)$/i.exec(busId.trim()) ?? [];
  if (rest === undefined) return busId.trim().toLowerCase();
  return `${domain.padStart(8, '0')}:${rest}`.toLowerCase();
}

/** For sorting normalized ids. */
export function compareBusIds(one: string, other: string): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}
