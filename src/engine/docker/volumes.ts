// The volumes that pods own. They outlive their containers; an operator's own are left alone.
import type { ContainerSpec } from '../engine.ts';
import type { DockerClient } from './docker-client.ts';
import { filterBy, nameVolume, PLATFORM_LABEL, POD_LABEL } from './labels.ts';

export interface VolumesOptions {
  client: DockerClient;
  platform: string;
}

export class Volumes {
  readonly #client: DockerClient;
  readonly #platform: string;

  constructor({ client, platform }: VolumesOptions) {
    this.#client = client;
    this.#platform = platform;
  }

  /** Leaves those that are there as they are. @throws AnswerError @throws EngineError */
  async provide({ id, mounts }: ContainerSpec): Promise<void> {
    for (const mount of mounts.filter(({ kind }) => kind === 'persistent')) {
      const Name = nameVolume(this.#platform, id, mount);
      await this.#client.ask((docker) => docker.createVolume({ Name, Labels: this.#label(id) }));
    }
  }

  /** Also where the container went before. @throws AnswerError @throws EngineError */
  async remove(id: string): Promise<void> {
    for (const name of await this.#list(id)) {
      const failure = await this.#client.act((docker) => docker.getVolume(name).remove());
      if (failure && (await this.#list(id)).includes(name)) throw failure;
    }
  }

  async #list(id: string): Promise<string[]> {
    const filters = filterBy(this.#label(id));
    const { Volumes } = await this.#client.ask((docker) => docker.listVolumes({ filters }));
    return (Volumes ?? []).map(({ Name }) => Name);
  }

  #label(id: string): Record<string, string> {
    return { [PLATFORM_LABEL]: this.#platform, [POD_LABEL]: id };
  }
}
