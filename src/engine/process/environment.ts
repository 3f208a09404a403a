// The environment that a container's process gets, made from nothing. Pure.
import type { Device } from '../../wire/link/worker-link.ts';
import type { ContainerSpec } from '../engine.ts';
import type { GivenPort } from './port-pool.ts';

/** By which the processes of a run are found again: the run's file. */
export const RUN_VARIABLE = 'MILLRACE_RUN';

export interface EnvironmentOptions {
  spec: ContainerSpec;
  /** What the spec's own stand above. Default: none. */
  defaults?: Readonly<Record<string, string>> | undefined;
  /** Its file. */
  run: string;
  folders: { disk: string; temporary: string; mount: string | undefined };
  ports: readonly GivenPort[];
  /** All of the machine. */
  devices: readonly Device[];
}

/** The spec's own come first; what is given by the engine alone (ports, GPUs) cannot be overwritten. */
export function makeEnvironment(options: EnvironmentOptions): Record<string, string> {
  const { defaults, devices, folders, ports, run, spec } = options;
  return {
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: folders.disk,
    TMPDIR: folders.temporary,
    LANG: 'C.UTF-8',
    ...defaults,
    ...spec.env,
    ...(folders.mount !== undefined && { MILLRACE_MOUNT: folders.mount }),
    ...describePorts(ports),
    ...pinDevices(spec.gpus, devices),
    [RUN_VARIABLE]: run,
  };
}

function describePorts(ports: readonly GivenPort[]): Record<string, string> {
  const named = ports.map((port) => [`MILLRACE_PORT_${port.private}`, `${port.public}`]);
  const [first] = ports;
  return { ...(first && { PORT: `${first.public}` }), ...Object.fromEntries(named) };
}

/**
 * Only the GPUs that were allotted are seen, and none where none were. -1 and not the empty text, which
 * some libraries take for a variable that is not set. On a machine where no GPU was found nothing is
 * hidden: there may be one that Millrace cannot see.
 */
function pinDevices(gpus: readonly string[], devices: readonly Device[]): Record<string, string> {
  if (!devices.some(({ kind }) => kind === 'gpu')) return {};
  const own = gpus.flatMap((uuid) => devices.find((device) => device.uuid === uuid) ?? []);
  const indices = own.map(({ index }) => index).join(',');
  if (own.some(({ uuid }) => uuid.startsWith('amd-'))) {
    // ROCr hides first, HIP then counts what is left from 0. CUDA's variable would contradict them.
    const places = own.map((_, place) => place).join(',');
    return { ROCR_VISIBLE_DEVICES: indices, HIP_VISIBLE_DEVICES: places };
  }
  if (own.some(({ uuid }) => uuid.startsWith('intel-'))) {
    return { ...HIDDEN_NVIDIA, HIP_VISIBLE_DEVICES: '-1', ZE_AFFINITY_MASK: indices };
  }
  if (own.length === 0) return { ...HIDDEN_NVIDIA, HIP_VISIBLE_DEVICES: '-1' };
  const uuids = own.map(({ uuid }) => uuid).join(',');
  return {
    CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
    CUDA_VISIBLE_DEVICES: uuids,
    NVIDIA_VISIBLE_DEVICES: uuids,
    HIP_VISIBLE_DEVICES: '-1',
  };
}

const HIDDEN_NVIDIA = { CUDA_VISIBLE_DEVICES: '-1', NVIDIA_VISIBLE_DEVICES: 'void' };
