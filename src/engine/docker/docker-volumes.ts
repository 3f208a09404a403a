// Creates and removes the platform's volumes on the engine. A pod's volumes end with the pod. An
// endpoint's volumes hold the state of its workers. Leaves the operator's own volumes alone.
import { z } from 'zod';
import type { Log } from '../../base/log.ts';
import type { ContainerSpec, StateVolumes } from '../engine.ts';
import { FolderQuotas, type QuotaOutcome } from '../folder-quotas.ts';
import type { DockerClient, DockerError } from './docker-client.ts';
import {
  ENDPOINT_LABEL,
  filterBy,
  nameStateVolume,
  nameVolume,
  PLATFORM_LABEL,
  POD_LABEL,
} from './labels.ts';

/** Of volumes that the platform names. */
const NETWORK_NAME = /^network-[0-9a-f]{24}$/;
const BYTES_PER_GB = 1_073_741_824;

const volume = z.object({
  Name: z.string(),
  Mountpoint: z.string(),
  Labels: z.record(z.string(), z.string()).nullish(),
});
const volumeList = z.object({ Volumes: z.array(volume).nullish() });

export interface VolumesOptions {
  client: DockerClient;
  platform: string;
  log: Log;
}

interface NamedVolume {
  name: string;
  labels: Readonly<Record<string, string>>;
}

export class DockerVolumes {
  readonly #client: DockerClient;
  readonly #platform: string;
  readonly #log: Log;
  readonly #quotas = new FolderQuotas();
  #isUnlimitedNoted = false;

  constructor({ client, log, platform }: VolumesOptions) {
    this.#client = client;
    this.#log = log;
    this.#platform = platform;
  }

  /** Existing volumes stay unchanged. @throws DockerError @throws EngineError */
  async provide({ id, mounts, stateVolume }: ContainerSpec): Promise<void> {
    for (const mount of mounts) {
      const { kind, sizeGb, source } = mount;
      const isOfPod = kind === 'persistent';
      // Others exist, or are the operator's.
      if (!isOfPod && !(NETWORK_NAME.test(source) && sizeGb !== undefined)) continue;
      const name = nameVolume(this.#platform, id, mount);
      await this.#create(name, isOfPod ? { [POD_LABEL]: id } : {});
      if (sizeGb !== undefined) await this.#limit(name, sizeGb);
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
    const exists = async () => (await this.#findFolder(name)) !== undefined;
    if (!(await exists())) return;
    const failure = await this.#removeOne(name);
    if (failure && (await exists())) throw failure;
  }

  /** Volumes of users, of all platforms. @throws DockerError @throws EngineError */
  async listNetwork(): Promise<string[]> {
    const volumes = await this.#query({ filters: JSON.stringify({ name: ['network-'] }) });
    return volumes.map(({ name }) => name).filter((name) => NETWORK_NAME.test(name));
  }

  /** Does nothing if it does not exist. @throws DockerError @throws EngineError */
  async growNetwork(name: string, sizeGb: number): Promise<void> {
    await this.#limit(name, sizeGb);
  }

  /** The engine cannot change the size of a volume, so the platform limits its folder, if this machine has it. */
  async #limit(name: string, sizeGb: number): Promise<void> {
    const folder = await this.#findFolder(name);
    if (folder === undefined) return;
    const outcome: QuotaOutcome = this.#client.isLocal
      ? await this.#quotas.limit(folder, sizeGb * BYTES_PER_GB)
      : { kind: 'none', why: 'the engine is on another machine' };
    if (outcome.kind === 'enforced' || this.#isUnlimitedNoted) return;
    this.#isUnlimitedNoted = true;
    this.#log.info({ path: folder, reason: outcome.why }, 'size of volumes is not enforced');
  }

  /** Undefined if the volume does not exist. */
  async #findFolder(name: string): Promise<string | undefined> {
    const found = await this.#client.find({ path: pathOf(name) });
    return found === undefined ? undefined : volume.parse(found).Mountpoint;
  }

  async #removeOne(name: string): Promise<DockerError | undefined> {
    let failure: DockerError | undefined;
    const remove = async () => {
      failure = await this.#client.act({ method: 'DELETE', path: pathOf(name) });
    };
    const folder = await this.#findFolder(name);
    if (folder === undefined || !this.#client.isLocal) await remove();
    else await this.#quotas.remove(folder, remove);
    return failure;
  }

  #create(Name: string, labels: Readonly<Record<string, string>>): Promise<unknown> {
    const Labels = { ...labels, [PLATFORM_LABEL]: this.#platform };
    return this.#client.ask({ method: 'POST', path: '/volumes/create', body: { Name, Labels } });
  }

  async #removeAll(labels: Readonly<Record<string, string>>): Promise<void> {
    for (const { name } of await this.#list(labels)) {
      const failure = await this.#removeOne(name);
      if (!failure) continue;
      if ((await this.#list(labels)).some((volume) => volume.name === name)) throw failure;
    }
  }

  #list(labels: Readonly<Record<string, string>>): Promise<NamedVolume[]> {
    return this.#query(filterBy({ ...labels, [PLATFORM_LABEL]: this.#platform }));
  }

  async #query(query: { filters: string }): Promise<NamedVolume[]> {
    const { Volumes } = volumeList.parse(await this.#client.ask({ path: '/volumes', query }));
    return (Volumes ?? []).map(({ Labels, Name }) => ({ name: Name, labels: Labels ?? {} }));
  }
}

function pathOf(name: string): string {
  return `/volumes/${encodeURIComponent(name)}`;
}
