// Asks the engine for a container: translates a spec into the create request, with the terms and the GPUs that this engine
// supports.

import { z } from 'zod';
import type { Log } from '../../base/log.ts';
import {
  type Containment,
  DEFAULT_CONTAINMENT,
  describeContainment,
  limitGpuMemory,
} from '../containment.ts';
import {
  type ContainerMount,
  type ContainerPort,
  type ContainerSpec,
  EngineError,
  type StateVolume,
  splitArgs,
} from '../engine.ts';
import { type DockerClient, type DockerError, isAboutDiskSize } from './docker-client.ts';
import {
  listAliases,
  nameContainer,
  nameNetwork,
  nameStateVolume,
  nameVolume,
  writeLabels,
} from './labels.ts';

export interface ContainerCreatorOptions {
  client: DockerClient;
  platform: string;
  containment?: Containment | undefined;
  machineGpus?: number | undefined;
  publishHost?: string | undefined;
  log: Log;
}

type GpuTerms = Pick<RequestOptions, 'gpuMeans' | 'gpuMemory'>;

/** Sends the create request, with the terms that this engine supports. */
export class ContainerCreator {
  readonly #options: ContainerCreatorOptions;
  /** `limited` until the engine says that it cannot limit disks. */
  #disk: 'limited' | 'unlimited' = 'limited';

  constructor(options: ContainerCreatorOptions) {
    this.#options = options;
  }

  /** Returns the engine's error instead of throwing it: the container may exist all the same. */
  async create(spec: ContainerSpec, gpuTerms: GpuTerms): Promise<DockerError | undefined> {
    const { log, platform, publishHost = '127.0.0.1' } = this.#options;
    const { containment = DEFAULT_CONTAINMENT } = this.#options;
    const request = { spec, platform, publishHost, containment, ...gpuTerms };
    const query = { name: nameContainer(platform, spec.id) };
    const make = (disk: 'limited' | 'unlimited') => {
      const body = describeRequest({ ...request, disk });
      return this.#options.client.act({ method: 'POST', path: '/containers/create', query, body });
    };
    const tried = this.#disk;
    const failure = await make(tried);
    if (!failure || tried === 'unlimited' || !isAboutDiskSize(failure)) return failure;
    if (this.#disk === 'limited') {
      this.#disk = 'unlimited';
      log.warn({ reason: failure.message }, 'engine cannot limit container disks');
    }
    return make('unlimited');
  }

  /** @throws EngineError, DockerError */
  async describeGpuTerms(spec: ContainerSpec): Promise<GpuTerms> {
    if (spec.gpus.length === 0) return { gpuMeans: 'nvidia', gpuMemory: null };
    const { containment = DEFAULT_CONTAINMENT, machineGpus = 0 } = this.#options;
    const info = gpuInfo.parse(await this.#options.client.ask({ path: '/info' }));
    const machine = { memoryBytes: info.MemTotal, gpus: machineGpus };
    return {
      gpuMeans: chooseMeans(info),
      gpuMemory: limitGpuMemory(spec, containment, machine),
    };
  }
}

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
function isFolder({ kind, source }: ContainerMount): boolean {
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

// NVIDIA GPUs: some engines ignore members of the request that they do not know.

/** `cdi`: by device files of NVIDIA's toolkit, for any engine; `nvidia`: by its hook in Docker. */
type GpuMeans = 'cdi' | 'nvidia';

interface DeviceRequest {
  Driver: string;
  DeviceIDs: string[];
  Capabilities?: string[][];
}

/** Which members an engine reports depends on its kind and version. */
const gpuInfo = z.object({
  MemTotal: z.number(),
  CDISpecDirs: z.array(z.string()).nullish(),
  DiscoveredDevices: z.array(z.object({ ID: z.string() })).nullish(),
});

/** The parts of an inspected container that describe devices. */
interface GivenDevices {
  DeviceRequests?:
    | readonly { DeviceIDs?: readonly string[] | null | undefined }[]
    | null
    | undefined;
  Devices?: readonly { PathOnHost?: string | undefined }[] | null | undefined;
}

const NVIDIA_UUID = /^(GPU|MIG)-/;

/** @throws EngineError `refused` for GPUs of another vendor */
export function checkVendor(uuids: readonly string[]): void {
  const other = uuids.find((uuid) => !NVIDIA_UUID.test(uuid));
  if (other === undefined) return;
  throw new EngineError(
    'refused',
    `${other} is not an NVIDIA GPU; containers get only NVIDIA GPUs`,
  );
}

export function chooseMeans({
  CDISpecDirs,
}: Pick<z.infer<typeof gpuInfo>, 'CDISpecDirs'>): GpuMeans {
  return CDISpecDirs?.length ? 'cdi' : 'nvidia';
}

export function requestGpus(uuids: readonly string[], means: GpuMeans): DeviceRequest[] {
  if (uuids.length === 0) return [];
  if (means === 'cdi') return [{ Driver: 'cdi', DeviceIDs: uuids.map(nameDevice) }];
  return [{ Driver: 'nvidia', DeviceIDs: [...uuids], Capabilities: [['gpu']] }];
}

/**
 * Overrides the image and the spec. If NVIDIA's runtime is the default one, it gives a container
 * the GPUs that this variable names.
 */
export function pinVariables(uuids: readonly string[], means: GpuMeans): Record<string, string> {
  const isByVariable = means === 'nvidia' && uuids.length > 0;
  return { NVIDIA_VISIBLE_DEVICES: isByVariable ? uuids.join(',') : 'void' };
}

export function hasGpus(given: GivenDevices, uuids: readonly string[]): boolean {
  const requested = (given.DeviceRequests ?? []).flatMap(({ DeviceIDs }) => DeviceIDs ?? []);
  const devices = (given.Devices ?? []).map(({ PathOnHost }) => PathOnHost);
  const all = new Set([...requested, ...devices]);
  return uuids.every((uuid) => all.has(uuid) || all.has(nameDevice(uuid)));
}

function nameDevice(uuid: string): string {
  return `nvidia.com/gpu=${uuid}`;
}
