// What the engine is asked to make of a spec. Pure.
import type { ContainerCreateOptions, MountSettings, PortMap } from 'dockerode';
import { splitArgs } from '../args.ts';
import type { ContainerMount, ContainerPort, ContainerSpec, StateVolume } from '../engine.ts';
import { type Containment, describeContainment } from './containment.ts';
import { type GpuMeans, pinVariables, requestGpus } from './gpu-requests.ts';
import {
  listAliases,
  nameContainer,
  nameNetwork,
  nameStateVolume,
  nameVolume,
  writeLabels,
} from './labels.ts';

const BYTES_PER_GB = 1_073_741_824;
const NANO = 1e9;
/** A log beyond it begins anew; as much is kept beside it. */
const MAX_LOG_SIZE = '10m';

export interface RequestOptions {
  spec: ContainerSpec;
  platform: string;
  /** Address of this machine that ports are published on. */
  publishHost: string;
  gpuMeans: GpuMeans;
  containment: Containment;
  /** Of a pod with GPUs, bytes; null: no limit. */
  gpuMemory: number | null;
  /** `limited`: as the spec says. */
  disk: 'limited' | 'unlimited';
}

/** @throws EngineError `refused` where the arguments cannot be split */
export function describeRequest(options: RequestOptions): ContainerCreateOptions {
  const { containment, disk, gpuMeans, gpuMemory, platform, publishHost, spec } = options;
  const { args, diskGb, env, gpus, id, image, limits, network, ports } = spec;
  const words = splitArgs(args);
  const networkName = nameNetwork(platform, network);
  const variables = { ...env, ...pinVariables(gpus, gpuMeans) };
  return {
    name: nameContainer(platform, id),
    Image: image,
    // Without words the image's own are taken.
    ...(words.length > 0 && { Cmd: words }),
    Env: Object.entries(variables).map(([name, value]) => `${name}=${value}`),
    Labels: writeLabels(platform, spec),
    ExposedPorts: Object.fromEntries(ports.map((port) => [namePort(port), {}])),
    HostConfig: {
      // Signals reach what the image starts, and nobody's children are left over.
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

/** As much memory with swap as without: beyond its limit it ends. */
function describeLimits({ memoryGb, vcpus }: { vcpus: number; memoryGb: number }) {
  const memory = Math.round(memoryGb * BYTES_PER_GB);
  return { NanoCpus: Math.round(vcpus * NANO), Memory: memory, MemorySwap: memory };
}

function describeMounts(
  platform: string,
  { id, mounts, stateVolume }: ContainerSpec,
): MountSettings[] {
  const own = mounts.map((mount) => describeMount(platform, id, mount));
  return stateVolume ? [...own, describeStateVolume(platform, stateVolume)] : own;
}

/** The engine gives a new volume the owner and mode that the image's folder at this path has. */
function describeStateVolume(platform: string, volume: StateVolume): MountSettings {
  return { Type: 'volume', Source: nameStateVolume(platform, volume), Target: volume.path };
}

function describeMount(platform: string, id: string, mount: ContainerMount): MountSettings {
  return {
    Type: isFolder(mount) ? 'bind' : 'volume',
    Source: isFolder(mount) ? mount.source : nameVolume(platform, id, mount),
    Target: mount.path,
  };
}

/** Of the engine's machine, which the operator has named. */
export function isFolder({ kind, source }: ContainerMount): boolean {
  return kind === 'network' && source.startsWith('/');
}

/** No port is named, so that the engine takes one that is free. */
function bindPorts(ports: readonly ContainerPort[], publishHost: string): PortMap {
  return Object.fromEntries(
    ports.map((port) => [namePort(port), [{ HostIp: publishHost, HostPort: '' }]]),
  );
}

/** As engines write it; HTTP is TCP to them. */
export function namePort(port: ContainerPort): string {
  return `${port.private}/${port.protocol === 'udp' ? 'udp' : 'tcp'}`;
}
