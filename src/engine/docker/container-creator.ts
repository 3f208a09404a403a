// Sends the create request for a container, with the terms that this engine supports.
import type { Log } from '../../base/log.ts';
import type { ContainerSpec } from '../engine.ts';
import { describeRequest, type RequestOptions } from './container-request.ts';
import { type Containment, DEFAULT_CONTAINMENT, limitGpuMemory } from './containment.ts';
import type { DockerClient, DockerError } from './docker-client.ts';
import { isAboutDiskSize } from './engine-refusals.ts';
import { chooseMeans, gpuInfo } from './gpu-requests.ts';
import { nameContainer } from './labels.ts';

export interface ContainerCreatorOptions {
  client: DockerClient;
  platform: string;
  containment?: Containment | undefined;
  machineGpus?: number | undefined;
  publishHost?: string | undefined;
  log: Log;
}

export type GpuTerms = Pick<RequestOptions, 'gpuMeans' | 'gpuMemory'>;

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
