// From what was found, what was asked for and what the environment allows to the sets that worker
// processes are started with. Pure; detection is before it.
import type { Detection, Problem } from './detect.ts';
import {
  DeviceChoiceError,
  type DeviceSetRequest,
  type DeviceSets,
  makeDeviceSets,
} from './device-sets.ts';
import { type Environment, restrictDevices } from './inherited-choice.ts';

export interface DevicePlanRequest {
  detection: Detection;
  perWorker: number | 'all';
  /** As given to --devices; undefined: what the environment leaves. */
  choice: string | undefined;
  /** That this process was started with. */
  environment: Environment;
}

export interface DevicePlan extends DeviceSets {
  /** What the operator should know of how it came about, one sentence each. */
  notes: string[];
  /** No NVIDIA GPU is wanted: a broken one does not matter. */
  isNvidiaUnwanted: boolean;
}

/**
 * Refuses where a driver that fails hides GPUs, because jobs would run on the processors, or on
 * fewer GPUs than the machine has, and nobody would know. @throws DeviceChoiceError
 */
export function planDevices(request: DevicePlanRequest): DevicePlan {
  const { detection, perWorker, environment } = request;
  const { devices, host } = detection;
  const choice = request.choice?.trim();
  const wish: DeviceSetRequest = { devices, host, perWorker, choice };
  if (choice !== undefined) {
    const sets = makeChosenSets(wish, findHidden(detection));
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
  // Their variables are set by makeDeviceSets, so that these GPUs stay hidden.
  const allowed = hides ? { ...wish, choice: 'cpu' } : { ...wish, devices: left };
  return { ...makeAllowedSets(allowed, notes), notes, isNvidiaUnwanted: hidesNvidia };
}

/** What cannot be had may be there, and hidden by the environment: that is said too. */
function makeAllowedSets(wish: DeviceSetRequest, notes: readonly string[]): DeviceSets {
  try {
    return makeDeviceSets(wish);
  } catch (error) {
    if (!(error instanceof DeviceChoiceError) || notes.length === 0) throw error;
    throw new DeviceChoiceError(`${error.message}; ${notes.join('; ')}`, error.remedy);
  }
}

function makeChosenSets(wish: DeviceSetRequest, hidden: Problem | undefined): DeviceSets {
  try {
    return makeDeviceSets(wish);
  } catch (error) {
    if (!(error instanceof DeviceChoiceError) || !hidden) throw error;
    throw new DeviceChoiceError(`${error.message}: ${hidden.text}`, hidden.remedy);
  }
}

/** Why GPUs that this machine seems to have are not among its devices. */
function findHidden({ devices, nvidia, problems }: Detection): Problem | undefined {
  const isAnyLeft = devices.some(({ vendor }) => vendor !== 'host');
  // One GPU of several that is lost is no reason not to use the others.
  if (nvidia.kind === 'working' && isAnyLeft) return undefined;
  return problems.find(({ severity }) => severity === 'error');
}

function listOverruled(environment: Environment): string[] {
  return ['CUDA_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES']
    .filter((name) => environment[name] !== undefined)
    .map((name) => `${name}=${environment[name]} in the environment is overridden by --devices`);
}
