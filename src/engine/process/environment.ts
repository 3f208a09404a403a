// Builds the environment of a container's process from nothing. Pure.
import type { Device } from '../../wire/link/worker-link.ts';
import type { ContainerSpec } from '../engine.ts';
import type { GivenPort } from './port-pool.ts';

/** Marks the processes of a run with the path of the run's file. */
export const RUN_VARIABLE = 'MILLRACE_RUN';

export interface EnvironmentOptions {
  spec: ContainerSpec;
  /** Overridden by the spec. Default: none. */
  defaults?: Readonly<Record<string, string>> | undefined;
  /** File of the run. */
  run: string;
  folders: { disk: string; temporary: string; mount: string | undefined };
  ports: readonly GivenPort[];
  /** All devices of the machine. */
  devices: readonly Device[];
}

/**
 * The spec overrides defaults, but not the variables that only the engine assigns (ports, GPUs).
 */
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
 * Shows only the allotted GPUs, or none. -1 and not an empty value, which some libraries treat as
 * unset. On a machine without detected GPUs nothing is hidden: there may be one that Millrace
 * cannot detect.
 */
function pinDevices(gpus: readonly string[], devices: readonly Device[]): Record<string, string> {
  if (!devices.some(({ kind }) => kind === 'gpu')) return {};
  const own = gpus.flatMap((uuid) => devices.find((device) => device.uuid === uuid) ?? []);
  const indices = own.map(({ index }) => index).join(',');
  if (own.some(({ uuid }) => uuid.startsWith('amd-'))) {
    // ROCr hides first; HIP then counts the remaining devices. CUDA's variable would contradict
    // them.
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
