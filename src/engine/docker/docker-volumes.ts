// Creates and removes the platform's volumes on the engine. A pod's volumes end with the pod. An
// endpoint's volumes hold the state of its workers. Leaves the operator's own volumes alone.
import type { ContainerSpec, StateVolumes } from '../engine.ts';
import type { DockerClient } from './docker-client.ts';
import {
  ENDPOINT_LABEL,
  filterBy,
  nameStateVolume,
  nameVolume,
  PLATFORM_LABEL,
  POD_LABEL,
} from './labels.ts';

export interface VolumesOptions {
  client: DockerClient;
  platform: string;
}

interface NamedVolume {
  name: string;
  labels: Readonly<Record<string, string>>;
}

export class DockerVolumes {
  readonly #client: DockerClient;
  readonly #platform: string;

  constructor({ client, platform }: VolumesOptions) {
    this.#client = client;
    this.#platform = platform;
  }

  /** Existing volumes stay unchanged. @throws DockerError @throws EngineError */
  async provide({ id, mounts, stateVolume }: ContainerSpec): Promise<void> {
    for (const mount of mounts.filter(({ kind }) => kind === 'persistent')) {
      await this.#create(nameVolume(this.#platform, id, mount), { [POD_LABEL]: id });
    }
    if (!stateVolume) return;
    const name = nameStateVolume(this.#platform, stateVolume);
    await this.#create(name, { [ENDPOINT_LABEL]: stateVolume.endpointId });
  }

  /**
   * Removes the pod's volumes, even if its container is already gone. @throws DockerError @throws
   * EngineError
   */
  remove(id: string): Promise<void> {
    return this.#removeAll({ [POD_LABEL]: id });
  }

  /** Volumes of endpoints. @throws DockerError @throws EngineError */
  readonly ofEndpoints: StateVolumes = {
    listEndpoints: async () => {
      const volumes = await this.#list({});
      return [...new Set(volumes.flatMap(({ labels }) => labels[ENDPOINT_LABEL] ?? []))];
    },
    remove: (endpointId) => this.#removeAll({ [ENDPOINT_LABEL]: endpointId }),
  };

  /** Removes the volume of a user with its content. @throws DockerError @throws EngineError */
  async removeNetwork(name: string): Promise<void> {
    const exists = () => this.#client.find((docker) => docker.getVolume(name).inspect());
    if (!(await exists())) return;
    const failure = await this.#client.act((docker) => docker.getVolume(name).remove());
    if (failure && (await exists())) throw failure;
  }

  #create(Name: string, labels: Readonly<Record<string, string>>): Promise<unknown> {
    const Labels = { ...labels, [PLATFORM_LABEL]: this.#platform };
    return this.#client.ask((docker) => docker.createVolume({ Name, Labels }));
  }

  async #removeAll(labels: Readonly<Record<string, string>>): Promise<void> {
    for (const { name } of await this.#list(labels)) {
      const failure = await this.#client.act((docker) => docker.getVolume(name).remove());
      if (!failure) continue;
      if ((await this.#list(labels)).some((volume) => volume.name === name)) throw failure;
    }
  }

  async #list(labels: Readonly<Record<string, string>>): Promise<NamedVolume[]> {
    const filters = filterBy({ ...labels, [PLATFORM_LABEL]: this.#platform });
    const { Volumes } = await this.#client.ask((docker) => docker.listVolumes({ filters }));
    return (Volumes ?? []).map(({ Labels, Name }) => ({ name: Name, labels: Labels ?? {} }));
  }
}
