// Which devices each worker process gets, and the environment that lets native code in it see these
// and no others. Pure: detection is before it, starting processes after it.
import type { Device } from '../../wire/link/worker-link.ts';
import type { FoundDevice, Vendor } from './found-device.ts';

/** Undefined removes a variable that would be inherited. */
export type DeviceEnvironment = Readonly<Record<string, string | undefined>>;

/** What one worker process is pinned to. */
export interface DeviceSet {
  /** In the order in which the process's own libraries number them, from 0. */
  devices: Device[];
  environment: DeviceEnvironment;
}

export interface DeviceSetRequest {
  /** As found, GPUs or else the host's processors. */
  devices: readonly FoundDevice[];
  /** Chosen by `cpu`, whether or not there are GPUs. */
  host: FoundDevice;
  perWorker: number | 'all';
  /** As given to --devices; undefined: all there are. */
  choice?: string | undefined;
}

export interface DeviceSets {
  sets: DeviceSet[];
  /** Chosen, but too few to fill one more set. */
  idle: Device[];
}

/** What was asked for cannot be had of these devices; says what can. */
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
 * Every set is of one maker and has exactly as many devices as asked for: a handler that needs two
 * GPUs fails on one, so what is left over stays idle and is named. A MIG instance is always alone,
 * because CUDA shows a process only one. @throws DeviceChoiceError
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

/** A number without a maker's name means the first of these that is there. */
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

/** `0`, `amd:0`; `0:1` for a MIG instance of a GPU, `0` for all of them. */
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

/** A whole UUID, or a beginning of one that only one device has; a divided GPU's means its parts. */
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

/** As --devices takes it, with the UUID that it stands for. */
export function nameDevice(found: FoundDevice): string {
  return found.vendor === 'host' ? 'cpu' : `${numberDevice(found)} (${found.device.uuid})`;
}

/** As --devices takes it: `0`, `0:1` for a MIG instance, `amd:0`, `cpu`. */
export function numberDevice({ device, vendor, mig }: FoundDevice): string {
  if (vendor === 'host') return 'cpu';
  const maker = vendor === 'nvidia' ? '' : `${vendor}:`;
  return `${maker}${device.index}${mig ? `:${mig.index}` : ''}`;
}

function makeGpuSet(vendor: (typeof VENDORS)[number], members: readonly FoundDevice[]): DeviceSet {
  const devices = members.map(({ device }) => device);
  return { devices, environment: PINNING[vendor](devices) };
}

/** Each hides only the devices of its own maker. */
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
  // ROCr hides first, HIP then counts what is left from 0. HIP takes CUDA_VISIBLE_DEVICES for its
  // own, so that an inherited one must go.
  amd: (devices) => ({
    ROCR_VISIBLE_DEVICES: devices.map(({ index }) => index).join(','),
    HIP_VISIBLE_DEVICES: devices.map((_, place) => place).join(','),
    CUDA_VISIBLE_DEVICES: undefined,
  }),
  intel: (devices) => ({ ZE_AFFINITY_MASK: devices.map(({ index }) => index).join(',') }),
};

/**
 * Where no GPU was found the environment stays as it is: there may be one that Millrace cannot see.
 * Where cpu was chosen in spite of GPUs, they are hidden. -1 and not the empty text, which some
 * libraries take for a variable that is not set.
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
