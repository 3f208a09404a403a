// Computes the device sets of the worker processes from detected devices, options and environment, in which a scheduler
// or a shell may have set variables of CUDA or ROCm. Pure. Reads the variables as these libraries do, which ignore
// errors in them.
import type { Detection, DeviceProblem, FoundDevice } from './detect.ts';
import {
  DeviceChoiceError,
  type DeviceSetRequest,
  type DeviceSets,
  makeDeviceSets,
  nameDevice,
} from './device-sets.ts';

export interface DevicePlanRequest {
  detection: Detection;
  perWorker: number | 'all';
  /** Value of --devices; undefined: all that the environment allows. */
  choice: string | undefined;
  /** Environment of this process. */
  environment: Environment;
}

export interface DevicePlan extends DeviceSets {
  /** Notes for the operator, one sentence each. */
  notes: string[];
  /** No NVIDIA GPU is used, so a broken one does not matter. */
  isNvidiaUnwanted: boolean;
}

/**
 * Refuses to start if a failing driver hides GPUs: otherwise jobs would run on the processors or on
 * too few GPUs without anybody noticing. @throws DeviceChoiceError
 */
export function planDevices(request: DevicePlanRequest): DevicePlan {
  const { detection, perWorker, environment } = request;
  const { devices, host } = detection;
  const choice = request.choice?.trim();
  const wanted: DeviceSetRequest = { devices, host, perWorker, choice };
  if (choice !== undefined) {
    const sets = makeChosenSets(wanted, findHidden(detection));
    return { ...sets, notes: listOverruled(environment), isNvidiaUnwanted: choice === 'cpu' };
  }
  const { devices: left, hidesNvidia, notes } = restrictDevices(devices, environment);
  const hidden = findHidden(detection);
  if (hidden && !hidesNvidia) {
    throw new DeviceChoiceError(
      hidden.text,
      `${hidden.remedy}; or run without GPUs (--devices cpu)`,
    );
  }
  const hasLeft = left.some(({ vendor }) => vendor !== 'host');
  const hides = devices.some(({ vendor }) => vendor !== 'host') && !hasLeft;
  // makeDeviceSets sets the variables that keep these GPUs hidden.
  const allowed = hides ? { ...wanted, choice: 'cpu' } : { ...wanted, devices: left };
  return { ...makeAllowedSets(allowed, notes), notes, isNvidiaUnwanted: hidesNvidia };
}

/** A missing device may exist but be hidden by the environment: the error says so. */
function makeAllowedSets(wanted: DeviceSetRequest, notes: readonly string[]): DeviceSets {
  try {
    return makeDeviceSets(wanted);
  } catch (error) {
    if (!(error instanceof DeviceChoiceError) || notes.length === 0) throw error;
    throw new DeviceChoiceError(`${error.message}; ${notes.join('; ')}`, error.remedy);
  }
}

function makeChosenSets(wanted: DeviceSetRequest, hidden: DeviceProblem | undefined): DeviceSets {
  try {
    return makeDeviceSets(wanted);
  } catch (error) {
    if (!(error instanceof DeviceChoiceError) || !hidden) throw error;
    throw new DeviceChoiceError(`${error.message}: ${hidden.text}`, hidden.remedy);
  }
}

/** Why GPUs that the machine seems to have were not detected. */
function findHidden({ devices, nvidia, problems }: Detection): DeviceProblem | undefined {
  const isAnyLeft = devices.some(({ vendor }) => vendor !== 'host');
  // If one of several GPUs is lost, the others can still be used.
  if (nvidia.kind === 'working' && isAnyLeft) return undefined;
  return problems.find(({ severity }) => severity === 'error');
}

function listOverruled(environment: Environment): string[] {
  return ['CUDA_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES']
    .filter((name) => environment[name] !== undefined)
    .map((name) => `${name}=${environment[name]} in the environment is overridden by --devices`);
}

export type Environment = Readonly<Record<string, string | undefined>>;

interface InheritedChoice {
  /** The remaining devices, in the order of the variables. */
  devices: FoundDevice[];
  /** The environment hides all NVIDIA GPUs: `-1`, `NoDevFiles`, or empty. */
  hidesNvidia: boolean;
  /** Which variables restrict devices, and what is uncertain about it. One sentence each. */
  notes: string[];
}

/** Restricts only NVIDIA's and AMD's devices, never the host's processors. */
export function restrictDevices(
  devices: readonly FoundDevice[],
  environment: Environment,
): InheritedChoice {
  const nvidia = devices.filter(({ vendor }) => vendor === 'nvidia');
  const amd = devices.filter(({ vendor }) => vendor === 'amd');
  const others = devices.filter(({ vendor }) => vendor !== 'nvidia' && vendor !== 'amd');
  const cuda = environment['CUDA_VISIBLE_DEVICES'];
  const notes: string[] = [];
  const leftOfNvidia = cuda === undefined ? nvidia : restrictCuda(nvidia, cuda, notes);
  if (cuda !== undefined && nvidia.length > 0) notes.push(...noteOrder(nvidia, environment));
  const leftOfAmd = restrictAmd(amd, environment, { hasNvidia: nvidia.length > 0, notes });
  return {
    devices: [...leftOfNvidia, ...leftOfAmd, ...others],
    hidesNvidia: cuda !== undefined && !NVIDIA_WORD.test(splitWords(cuda)[0] ?? ''),
    notes,
  };
}

const NVIDIA_WORD = /^(?:\d+|(?:GPU|MIG)-.+)$/;

function restrictCuda(gpus: FoundDevice[], value: string, notes: string[]): FoundDevice[] {
  const name = 'CUDA_VISIBLE_DEVICES';
  if (gpus.length === 0) return [];
  return restrict({ name, value, gpus, find: (word) => findNvidia(word, gpus, notes), notes });
}

/**
 * ROCr hides first; HIP counts the remaining devices, and reads CUDA's variable if its own is
 * unset.
 */
function restrictAmd(
  gpus: FoundDevice[],
  environment: Environment,
  { hasNvidia, notes }: { hasNvidia: boolean; notes: string[] },
): FoundDevice[] {
  if (gpus.length === 0) return [];
  const isIndex = (word: string) => /^\d+$/.test(word);
  let left = gpus;
  const rocr = environment['ROCR_VISIBLE_DEVICES'];
  if (rocr !== undefined) {
    const find = (word: string) =>
      isIndex(word) ? gpus.find(({ device }) => device.index === Number(word)) : undefined;
    left = restrict({ name: 'ROCR_VISIBLE_DEVICES', value: rocr, gpus, find, notes });
  }
  const name =
    environment['HIP_VISIBLE_DEVICES'] === undefined && !hasNvidia
      ? 'CUDA_VISIBLE_DEVICES'
      : 'HIP_VISIBLE_DEVICES';
  const hip = environment[name];
  if (hip === undefined) return left;
  const counted = left;
  const find = (word: string) => (isIndex(word) ? counted[Number(word)] : undefined);
  return restrict({ name, value: hip, gpus: counted, find, notes });
}

interface Restriction {
  name: string;
  value: string;
  gpus: readonly FoundDevice[];
  find: (word: string) => FoundDevice | undefined;
  notes: string[];
}

/** Reads up to the first word that is not a device; naming a device twice hides all. */
function restrict({ name, value, gpus, find, notes }: Restriction): FoundDevice[] {
  const left: FoundDevice[] = [];
  for (const word of splitWords(value)) {
    const found = find(word);
    if (!found) {
      notes.push(explainEnd(name, word));
      break;
    }
    if (left.includes(found)) {
      notes.push(`${name}=${value} names ${nameDevice(found)} twice, which hides every device`);
      return [];
    }
    left.push(found);
  }
  notes.push(
    `${name}=${value} in the environment limits this worker to ${left.length} of ${gpus.length} devices`,
  );
  return left;
}

function explainEnd(name: string, word: string): string {
  const isHiding = /^(?:|-1|NoDevFiles)$/.test(word);
  const what = isHiding ? 'names no device' : 'matches no device of this machine';
  return `${JSON.stringify(word)} in ${name} ${what}; it and all after it are ignored`;
}

function splitWords(value: string): string[] {
  return value.split(',').map((word) => word.trim());
}

/** An index, a UUID or a prefix of one; for a GPU in MIG mode CUDA uses the first instance. */
function findNvidia(
  word: string,
  gpus: readonly FoundDevice[],
  notes: string[],
): FoundDevice | undefined {
  const [found, ...more] = matchNvidia(word, gpus);
  if (found?.mig && !word.startsWith('MIG-')) {
    notes.push(
      `${word} in CUDA_VISIBLE_DEVICES is a GPU in MIG mode; CUDA shows only its first instance`,
    );
    return found;
  }
  return more.length === 0 ? found : undefined;
}

function matchNvidia(word: string, gpus: readonly FoundDevice[]): FoundDevice[] {
  if (/^\d+$/.test(word)) return gpus.filter(({ device }) => device.index === Number(word));
  // Format of drivers up to 460.
  const [, parent, instance, compute] = /^MIG-(GPU-[^/]+)\/(\d+)\/(\d+)$/.exec(word) ?? [];
  if (parent !== undefined) {
    return gpus.filter(
      ({ mig }) =>
        mig?.parentUuid === parent &&
        mig.gpuInstanceId === Number(instance) &&
        mig.computeInstanceId === Number(compute),
    );
  }
  if (!NVIDIA_WORD.test(word)) return [];
  const uuidOf = ({ device, mig }: FoundDevice) =>
    word.startsWith('GPU-') ? (mig?.parentUuid ?? device.uuid) : device.uuid;
  const begun = gpus.filter((gpu) => uuidOf(gpu).startsWith(word));
  // Several instances of one GPU still identify one GPU.
  return new Set(begun.map(uuidOf)).size > 1 ? begun.filter((gpu) => uuidOf(gpu) === word) : begun;
}

function noteOrder(gpus: readonly FoundDevice[], environment: Environment): string[] {
  const words = splitWords(environment['CUDA_VISIBLE_DEVICES'] ?? '');
  const models = new Set(
    gpus.map(({ device, mig }) => (mig ? parentModel(device.name) : device.name)),
  );
  const isSure =
    environment['CUDA_DEVICE_ORDER'] === 'PCI_BUS_ID' ||
    models.size < 2 ||
    !words.some((word) => /^\d+$/.test(word));
  if (isSure) return [];
  return [
    'Millrace reads the numbers in CUDA_VISIBLE_DEVICES in PCI bus order, but CUDA puts the fastest GPU first ' +
      'and the GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name UUIDs',
  ];
}

/** `NVIDIA A100-SXM4-80GB` for the instance `NVIDIA A100-SXM4-80GB MIG 2`. */
function parentModel(name: string): string {
  return name.replace(/ MIG \d+$/, '');
}
