// Creates and removes networks: one for each name that pods share, and one in which containers cannot reach each other.
// Finds out how containers reach the machine.

import { isIPv4 } from 'node:net';
import { z } from 'zod';
import { type ContainerReach, EngineError } from '../engine.ts';
import type { InspectedContainer } from './container-view.ts';
import { type DockerClient, isNameTaken } from './docker-client.ts';
import { filterBy, listAliases, NETWORK_LABEL, nameNetwork, PLATFORM_LABEL } from './labels.ts';

const networkList = z.array(
  z.object({
    Id: z.string(),
    Name: z.string(),
    Created: z.string(),
    Labels: z.record(z.string(), z.string()).nullish(),
  }),
);
type FoundNetwork = z.infer<typeof networkList>[number];

const ISOLATED = { 'com.docker.network.bridge.enable_icc': 'false' };

export interface NetworksOptions {
  client: DockerClient;
  platform: string;
}

export class Networks {
  readonly #client: DockerClient;
  readonly #platform: string;
  #lastProvided: Promise<unknown> = Promise.resolve();

  constructor({ client, platform }: NetworksOptions) {
    this.#client = client;
    this.#platform = platform;
  }

  /** `network`: from a spec. @returns its ID @throws DockerError @throws EngineError */
  provide(network: string | null): Promise<string> {
    const provided = this.#lastProvided.then(() => this.#provide(network));
    this.#lastProvided = provided.catch(() => {});
    return provided;
  }

  /** For a stopped container whose network has been replaced. */
  async rejoin({ container, key, network }: InspectedContainer, networkId: string): Promise<void> {
    const Aliases = listAliases(container.id, network);
    const post = (verb: string, body: object) =>
      this.#client.ask({ method: 'POST', path: `/networks/${networkId}/${verb}`, body });
    await post('disconnect', { Container: key, Force: true });
    await post('connect', { Container: key, EndpointConfig: { Aliases } });
  }

  /** Removes unused networks; the next container creates its network again. */
  async sweep(): Promise<void> {
    for (const { Id, Labels } of await this.#list()) {
      const network = Labels?.[NETWORK_LABEL];
      if (network !== undefined && !(await this.#isUsed(network))) await this.#remove(Id);
    }
  }

  /**
   * Engines allow several networks with one name and then start no container in any of them. If
   * several were created at once, by platforms of which one has died, the first one stays.
   */
  async #provide(network: string | null): Promise<string> {
    const name = nameNetwork(this.#platform, network);
    const known = await this.#listOf(name);
    if (known.length === 0) await this.#make(name, network);
    const [first, ...surplus] = known.length === 0 ? await this.#listOf(name) : known;
    for (const { Id } of surplus) await this.#remove(Id);
    if (!first) throw new EngineError('unavailable', `network ${name} not found`);
    return first.Id;
  }

  async #make(Name: string, network: string | null): Promise<void> {
    const body = {
      Name,
      Driver: 'bridge',
      CheckDuplicate: true,
      Labels: {
        [PLATFORM_LABEL]: this.#platform,
        ...(network !== null && { [NETWORK_LABEL]: network }),
      },
      ...(network === null && { Options: ISOLATED }),
    };
    const failure = await this.#client.act({ method: 'POST', path: '/networks/create', body });
    if (failure && !isNameTaken(failure)) throw failure;
  }

  /** A network in use stays. */
  async #remove(id: string): Promise<void> {
    await this.#client.act({ method: 'DELETE', path: `/networks/${id}` });
  }

  /** The oldest first. */
  async #listOf(name: string): Promise<FoundNetwork[]> {
    const found = (await this.#list()).filter(({ Name }) => Name === name);
    return found.sort(
      (a, b) => Date.parse(a.Created) - Date.parse(b.Created) || (a.Id < b.Id ? -1 : 1),
    );
  }

  async #list(): Promise<FoundNetwork[]> {
    const query = filterBy({ [PLATFORM_LABEL]: this.#platform });
    return networkList.parse(await this.#client.ask({ path: '/networks', query }));
  }

  async #isUsed(network: string): Promise<boolean> {
    const query = filterBy({ [PLATFORM_LABEL]: this.#platform, [NETWORK_LABEL]: network });
    return (await this.#client.listContainers(query)).length > 0;
  }
}

const DESKTOP = 'Docker Desktop';
const PODMAN = 'Podman Engine';

const description = z.object({
  info: z.object({ OperatingSystem: z.string().nullish() }),
  version: z.object({ Components: z.array(z.object({ Name: z.string() })).nullish() }),
  /** The default network. Undefined: the engine has none. */
  bridge: z
    .object({
      IPAM: z.object({
        Config: z
          .array(z.object({ Gateway: z.string().nullish(), Subnet: z.string().nullish() }))
          .nullish(),
      }),
    })
    .optional(),
});

/** `description`: answers of the engine about itself and its default network. */
export function readReach(given: Record<'info' | 'version' | 'bridge', unknown>): ContainerReach {
  const { bridge, info, version } = description.parse(given);
  const gateways =
    bridge?.IPAM.Config?.flatMap(({ Gateway, Subnet }) => Gateway ?? findFirstAddress(Subnet)) ??
    [];
  const gateway = gateways.find((address) => isIPv4(address)) ?? null;
  if (version.Components?.some(({ Name }) => Name === PODMAN)) return { gateway, hostName: 'none' };
  if (info.OperatingSystem?.includes(DESKTOP)) return { gateway, hostName: 'loopback' };
  return { gateway, hostName: gateway === null ? 'none' : 'gateway' };
}

/**
 * An engine that has never been restarted names only the subnet of its default network. It gives itself the first address.
 * @param subnet such as 172.17.0.0/16
 */
function findFirstAddress(subnet: string | null | undefined): string[] {
  const [network = ''] = subnet?.split('/') ?? [];
  return isIPv4(network) && network.endsWith('.0') ? [network.replace(/0$/, '1')] : [];
}
