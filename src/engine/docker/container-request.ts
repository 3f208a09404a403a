// Translates a container spec into the engine's create request. Pure.
import { splitArgs } from '../args.ts';
import type { ContainerMount, ContainerPort, ContainerSpec, StateVolume } from '../engine.ts';
import { type Containment, describeContainment } from './containment.ts';
import { type GpuMeans, pinVariables, requestGpus } from './gpu-requests.ts';
import { listAliases, nameNetwork, nameStateVolume, nameVolume, writeLabels } from './labels.ts';

const BYTES_PER_GB = 1_073_741_824;
const NANO = 1e9;
/** Size at which a log is rotated; one old file is kept. */
const MAX_LOG_SIZE = '10m';

interface Mount {
  Type: 'bind' | 'volume';
  Source: string;
  Target: string;
}

export interface RequestOptions {
  spec: ContainerSpec;
  platform: string;
  /** Address of this machine on which ports are published. */
  publishHost: string;
  gpuMeans: GpuMeans;
  containment: Containment;
  /** Memory of a pod with GPUs, bytes; null: no limit. */
  gpuMemory: number | null;
  /** `limited`: as the spec says. */
  disk: 'limited' | 'unlimited';
}

/** The body of the request. @throws EngineError `refused` if the arguments cannot be split */
export function describeRequest(options: RequestOptions) {
  const { containment, disk, gpuMeans, gpuMemory, platform, publishHost, spec } = options;
  const { args, diskGb, env, gpus, id, image, limits, network, ports } = spec;
  const words = splitArgs(args);
  const networkName = nameNetwork(platform, network);
  const variables = { ...env, ...pinVariables(gpus, gpuMeans) };
  return {
    Image: image,
    // Without arguments the image's own command runs.
    ...(words.length > 0 && { Cmd: words }),
    Env: Object.entries(variables).map(([name, value]) => `${name}=${value}`),
    Labels: writeLabels(platform, spec),
    ExposedPorts: Object.fromEntries(ports.map((port) => [namePort(port), {}])),
    HostConfig: {
      // An init process forwards signals and reaps orphans.
      Init: true,
      NetworkMode: networkName,
      ExtraHosts: ['host.docker.internal:host-gateway'],
      PortBindings: bindPorts(ports, publishHost),
      Mounts: describeMounts(platform, spec),
      LogConfig: { Type: 'json-file', Config: { 'max-size': MAX_LOG_SIZE, 'max-file': '2' } },
      DeviceRequests: requestGpus(gpus, gpuMeans),
      ...describeContainment(containment),
      ...(gpuMemory !== null && { Memory: gpuMemory, MemorySwap: gpuMemory }),
      ...(limits && describeLimits(limits)),
      ...(disk === 'limited' && { StorageOpt: { size: `${diskGb}G` } }),
    },
    NetworkingConfig: {
      EndpointsConfig: { [networkName]: { Aliases: listAliases(id, network) } },
    },
  };
}

/** No swap: a container beyond its memory limit is ended. */
function describeLimits({ memoryGb, vcpus }: { vcpus: number; memoryGb: number }) {
  const memory = Math.round(memoryGb * BYTES_PER_GB);
  return { NanoCpus: Math.round(vcpus * NANO), Memory: memory, MemorySwap: memory };
}

function describeMounts(platform: string, { id, mounts, stateVolume }: ContainerSpec): Mount[] {
  const own = mounts.map((mount) => describeMount(platform, id, mount));
  return stateVolume ? [...own, describeStateVolume(platform, stateVolume)] : own;
}

/** The engine gives a new volume the owner and mode of the image's folder at this path. */
function describeStateVolume(platform: string, volume: StateVolume): Mount {
  return { Type: 'volume', Source: nameStateVolume(platform, volume), Target: volume.path };
}

function describeMount(platform: string, id: string, mount: ContainerMount): Mount {
  return {
    Type: isFolder(mount) ? 'bind' : 'volume',
    Source: isFolder(mount) ? mount.source : nameVolume(platform, id, mount),
    Target: mount.path,
  };
}

/** A folder of the engine's machine that the operator has named. */
export function isFolder({ kind, source }: ContainerMount): boolean {
  return kind === 'network' && source.startsWith('/');
}

/** Without a host port the engine chooses a free one. */
function bindPorts(ports: readonly ContainerPort[], publishHost: string) {
  return Object.fromEntries(
    ports.map((port) => [namePort(port), [{ HostIp: publishHost, HostPort: '' }]]),
  );
}

/** In the engine's notation, which knows HTTP only as TCP. */
export function namePort(port: ContainerPort): string {
  return `${port.private}/${port.protocol === 'udp' ? 'udp' : 'tcp'}`;
}
