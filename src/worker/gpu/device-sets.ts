// Assigns devices to worker processes, builds the environment in which native code sees only these devices, and finds the
// processors next to them. Only planAffinity reads files.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Device } from '../../wire/link/worker-link.ts';
import type { FoundDevice, Vendor } from './detect.ts';
import { findProgram } from './program.ts';

/** Undefined removes an inherited variable. */
type DeviceEnvironment = Readonly<Record<string, string | undefined>>;

/** The devices that one worker process is pinned to. */
export interface DeviceSet {
  /** In the order in which the process's own libraries number them, from 0. */
  devices: Device[];
  environment: DeviceEnvironment;
}

export interface DeviceSetRequest {
  /** Detected GPUs, or the host's processors. */
  devices: readonly FoundDevice[];
  /** Chosen by `cpu`, with or without GPUs. */
  host: FoundDevice;
  perWorker: number | 'all';
  /** Value of --devices; undefined: all devices. */
  choice?: string | undefined;
}

export interface DeviceSets {
  sets: DeviceSet[];
  /** Chosen devices that do not fill another set. */
  idle: Device[];
}

/** The requested devices do not exist; the message says which do. */
export class DeviceChoiceError extends Error {
  override readonly name = 'DeviceChoiceError';
  /** What to do about it. */
  readonly remedy: string;

  constructor(message: string, remedy = 'change --devices or --gpus-per-worker') {
    super(message);
    this.remedy = remedy;
  }
}

/** The value of --gpus-per-worker: a number from 1, or `all`. @throws DeviceChoiceError */
export function parseGpusPerWorker(text: string): number | 'all' {
  if (text === 'all') return 'all';
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text);
  throw new DeviceChoiceError(`must be a number from 1, or all; got ${JSON.stringify(text)}`);
}

/**
 * Each set has exactly the requested number of devices, of one vendor. Remaining devices stay idle
 * and are named, because a handler that needs two GPUs fails with one. A MIG instance is always
 * alone, because CUDA shows a process only one. @throws DeviceChoiceError
 */
export function makeDeviceSets(request: DeviceSetRequest): DeviceSets {
  const { devices, host, perWorker, choice } = request;
  const chosen = choice === undefined ? devices : chooseDevices(choice, devices, host);
  if (chosen.every(({ vendor }) => vendor === 'host')) {
    return { sets: [makeHostSet(host, devices)], idle: [] };
  }
  const sets: DeviceSet[] = [];
  const idle: Device[] = [];
  for (const vendor of VENDORS) {
    const own = chosen.filter((each) => each.vendor === vendor);
    if (own.length === 0) continue;
    const size = perWorker === 'all' ? own.length : perWorker;
    const part = own.find(({ mig }) => mig);
    if (part && size > 1) throw new DeviceChoiceError(explainMig(part, size));
    const whole = own.length - (own.length % size);
    for (let start = 0; start < whole; start += size) {
      sets.push(makeGpuSet(vendor, own.slice(start, start + size)));
    }
    idle.push(...own.slice(whole).map(({ device }) => device));
  }
  if (sets.length === 0) {
    throw new DeviceChoiceError(
      `each worker needs ${perWorker} GPUs, only ${idle.length} are available`,
    );
  }
  return { sets, idle };
}

/** A number without a vendor's name means the first of these vendors that is present. */
const VENDORS = ['nvidia', 'amd', 'intel'] as const satisfies readonly Vendor[];

function explainMig({ device }: FoundDevice, size: number): string {
  return (
    `each worker needs ${size} devices, but ${device.uuid} is a MIG instance and CUDA shows a process ` +
    'only one; use 1 GPU per worker, or choose others with --devices'
  );
}

function chooseDevices(
  choice: string,
  devices: readonly FoundDevice[],
  host: FoundDevice,
): FoundDevice[] {
  const words = choice.split(',').map((word) => word.trim());
  if (words.includes('cpu')) {
    if (words.length === 1) return [host];
    throw new DeviceChoiceError('cpu cannot be combined with GPUs');
  }
  const gpus = devices.filter(({ vendor }) => vendor !== 'host');
  const chosen = words.flatMap((word) => chooseByWord(word, gpus));
  const twice = chosen.find((each, place) => chosen.indexOf(each) < place);
  if (twice) throw new DeviceChoiceError(`${twice.device.uuid} is named twice in ${choice}`);
  return chosen;
}

function chooseByWord(word: string, gpus: readonly FoundDevice[]): FoundDevice[] {
  const found = matchIndex(word, gpus) ?? matchUuid(word, gpus);
  if (found.length > 0) return found;
  throw new DeviceChoiceError(`device ${JSON.stringify(word)} not found; ${listChoices(gpus)}`);
}

/** `0`, `amd:0`; `0:1` for a MIG instance of a GPU, `0` for all of its instances. */
function matchIndex(word: string, gpus: readonly FoundDevice[]): FoundDevice[] | undefined {
  const [, maker, digits, part] = /^(?:(nvidia|amd|intel):)?(\d+)(?::(\d+))?$/.exec(word) ?? [];
  if (digits === undefined) return undefined;
  const vendor = maker ?? VENDORS.find((name) => gpus.some((gpu) => gpu.vendor === name));
  return gpus.filter(
    (gpu) =>
      gpu.vendor === vendor &&
      gpu.device.index === Number(digits) &&
      (part === undefined || gpu.mig?.index === Number(part)),
  );
}

/** A whole UUID, or a unique prefix of one; the UUID of a GPU with MIG means its instances. */
function matchUuid(word: string, gpus: readonly FoundDevice[]): FoundDevice[] {
  const parts = gpus.filter(({ mig }) => mig?.parentUuid === word);
  if (parts.length > 0) return parts;
  const exact = gpus.filter(({ device }) => device.uuid === word);
  if (exact.length > 0 || !/^(?:GPU|MIG|amd|intel)-./.test(word)) return exact;
  const begun = gpus.filter(({ device }) => device.uuid.startsWith(word));
  if (begun.length < 2) return begun;
  throw new DeviceChoiceError(
    `${word} matches the UUIDs of ${begun.length} devices; write more of the UUID`,
  );
}

function listChoices(gpus: readonly FoundDevice[]): string {
  if (gpus.length === 0) return 'this machine has no GPU; choose cpu';
  return `choose from ${gpus.map(nameDevice).join(', ')}, cpu`;
}

/** For --devices, with the device's UUID. */
export function nameDevice(found: FoundDevice): string {
  return found.vendor === 'host' ? 'cpu' : `${numberDevice(found)} (${found.device.uuid})`;
}

/** For --devices: `0`, `0:1` for a MIG instance, `amd:0`, `cpu`. */
export function numberDevice({ device, vendor, mig }: FoundDevice): string {
  if (vendor === 'host') return 'cpu';
  const maker = vendor === 'nvidia' ? '' : `${vendor}:`;
  return `${maker}${device.index}${mig ? `:${mig.index}` : ''}`;
}

function makeGpuSet(vendor: (typeof VENDORS)[number], members: readonly FoundDevice[]): DeviceSet {
  const devices = members.map(({ device }) => device);
  return { devices, environment: PINNING[vendor](devices) };
}

/** Each function hides only devices of its own vendor. */
const PINNING: Readonly<
  Record<(typeof VENDORS)[number], (devices: Device[]) => DeviceEnvironment>
> = {
  nvidia: (devices) => {
    const uuids = devices.map(({ uuid }) => uuid).join(',');
    return {
      CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
      CUDA_VISIBLE_DEVICES: uuids,
      NVIDIA_VISIBLE_DEVICES: uuids,
    };
  },
  // ROCr hides first; HIP then counts the remaining devices from 0. HIP also reads
  // CUDA_VISIBLE_DEVICES, so an inherited value must be removed.
  amd: (devices) => ({
    ROCR_VISIBLE_DEVICES: devices.map(({ index }) => index).join(','),
    HIP_VISIBLE_DEVICES: devices.map((_, place) => place).join(','),
    CUDA_VISIBLE_DEVICES: undefined,
  }),
  intel: (devices) => ({ ZE_AFFINITY_MASK: devices.map(({ index }) => index).join(',') }),
};

/**
 * Without detected GPUs the environment stays unchanged: there may be one that Millrace cannot
 * detect. If cpu was chosen despite GPUs, they are hidden, with -1 because some libraries treat an
 * empty variable as unset.
 */
function makeHostSet(host: FoundDevice, devices: readonly FoundDevice[]): DeviceSet {
  const hasGpus = devices.some(({ vendor }) => vendor !== 'host');
  const hidden = {
    CUDA_VISIBLE_DEVICES: '-1',
    NVIDIA_VISIBLE_DEVICES: 'void',
    HIP_VISIBLE_DEVICES: '-1',
  };
  return { devices: [host.device], environment: hasGpus ? hidden : {} };
}

interface AffinityOptions {
  set: DeviceSet;
  /** Detected devices, with their bus IDs. */
  devices: readonly FoundDevice[];
  /** The PATH of the environment. */
  searchPath: string;
  /** Folder with the kernel's PCI devices. Default `/sys/bus/pci/devices`. */
  pciFolder?: string;
  /** The kernel's status of this process. Default `/proc/self/status`. */
  statusFile?: string;
}

interface Affinity {
  /** Prefix of the command, such as `['/usr/bin/taskset', '-c', '0-15,32-47']`; or empty. */
  prefix: string[];
  /** In the kernel's form, `0-15,32-47`; undefined: the process is not pinned. */
  processors: string | undefined;
  /** Why the process is not pinned, in one sentence. */
  note?: string;
}

/** Plans how to pin a process to the processors near its GPUs. Never rejects: a machine may lack this information. */
export async function planAffinity(options: AffinityOptions): Promise<Affinity> {
  const { set, devices, searchPath, statusFile = '/proc/self/status' } = options;
  const { pciFolder = '/sys/bus/pci/devices' } = options;
  const uuids = new Set(set.devices.map(({ uuid }) => uuid));
  const busIds = new Set(
    devices
      .filter(({ device, pciBusId }) => uuids.has(device.uuid) && pciBusId !== '')
      .map(({ pciBusId }) => pciBusId),
  );
  if (busIds.size === 0) return skipPinning();
  const near = new Set<number>();
  for (const busId of busIds) {
    const found = await readNear(join(pciFolder, toKernelForm(busId)));
    if (!found) return skipPinning(`the kernel does not report the CPUs near ${busId}`);
    for (const processor of found) near.add(processor);
  }
  const allowed = await readAllowed(statusFile);
  if (!allowed) return skipPinning('the kernel does not report the CPUs that this process may use');
  const both = [...near].filter((processor) => allowed.has(processor));
  const where = [...busIds].join(', ');
  if (both.length === 0) return skipPinning(`this process may not use any CPU near ${where}`);
  // A machine with one node: nothing to choose.
  if (both.length === allowed.size) return skipPinning();
  const taskset = await findProgram('taskset', searchPath);
  if (taskset === undefined) {
    return skipPinning('program taskset not found on the PATH; install util-linux');
  }
  const processors = formatProcessors(both);
  return { prefix: [taskset, '-c', processors], processors };
}

function skipPinning(note?: string): Affinity {
  return { prefix: [], processors: undefined, ...(note !== undefined && { note }) };
}

/** The kernel writes a PCI domain with four digits, nvidia-smi with eight. */
function toKernelForm(busId: string): string {
  return busId.replace(/^0{1,4}(?=[0-9a-f]{4,}:)/, '');
}

/** Undefined if the firmware names no node: every processor is equally near. */
async function readNear(folder: string): Promise<Set<number> | undefined> {
  const node = await readOrNothing(join(folder, 'numa_node'));
  if (node === '' || Number(node) < 0) return undefined;
  const processors = parseProcessors(await readOrNothing(join(folder, 'local_cpulist')));
  return processors.size > 0 ? processors : undefined;
}

async function readAllowed(statusFile: string): Promise<Set<number> | undefined> {
  const status = await readOrNothing(statusFile);
  const processors = parseProcessors(/^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1] ?? '');
  return processors.size > 0 ? processors : undefined;
}

function readOrNothing(path: string): Promise<string> {
  return readFile(path, 'utf8').then(
    (text) => text.trim(),
    () => '',
  );
}

/** `0-3,8` → 0, 1, 2, 3, 8; empty if the text is not a list. */
function parseProcessors(list: string): Set<number> {
  const found = new Set<number>();
  for (const part of list.split(',')) {
    const [, first, last = first] = /^(\d+)(?:-(\d+))?$/.exec(part.trim()) ?? [];
    if (first === undefined) return new Set();
    for (let processor = Number(first); processor <= Number(last); processor++)
      found.add(processor);
  }
  return found;
}

/** The shortest form: neighbours as ranges. */
function formatProcessors(processors: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const processor of processors.toSorted((one, other) => one - other)) {
    const range = ranges.at(-1);
    if (range && range[1] === processor - 1) range[1] = processor;
    else ranges.push([processor, processor]);
  }
  return ranges
    .map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`))
    .join(',');
}
