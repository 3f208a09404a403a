// Computes the device sets of the worker processes from detected devices, options and environment.
// Pure.
import type { Detection, DeviceProblem } from './detect.ts';
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
