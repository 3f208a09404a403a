// The API of network volumes: the records of the caller's user, with the endpoints and pods that mount each.
import type {
  NetworkVolumeCreation,
  NetworkVolumeRecord,
  NetworkVolumeUpdate,
  StoredNetworkVolume,
} from '../../wire/resources/network-volume.ts';
import type { Rights } from '../keys/rights.ts';
import type { CallerResources, ResourcePage, UserListing } from '../user-resources.ts';
import type { NetworkVolumeService } from './network-volumes.ts';
import { findUses, type VolumeUsers } from './volume-uses.ts';

export class CallerVolumes
  implements CallerResources<NetworkVolumeCreation, NetworkVolumeUpdate, NetworkVolumeRecord>
{
  readonly #volumes: NetworkVolumeService;
  readonly #users: VolumeUsers;

  constructor(volumes: NetworkVolumeService, users: VolumeUsers) {
    this.#volumes = volumes;
    this.#users = users;
  }

  async list(
    caller: Rights,
    listing: Omit<UserListing, 'userId'>,
  ): Promise<ResourcePage<NetworkVolumeRecord>> {
    const { next, records } = this.#volumes.list({ ...listing, userId: caller.userId });
    return { records: this.#describe(caller, records), next };
  }

  async create(caller: Rights, creation: NetworkVolumeCreation): Promise<NetworkVolumeRecord> {
    return this.#describeOne(caller, await this.#volumes.create(caller.userId, creation));
  }

  async get(caller: Rights, id: string): Promise<NetworkVolumeRecord> {
    return this.#describeOne(caller, this.#volumes.get(caller.userId, id));
  }

  async update(
    caller: Rights,
    id: string,
    update: NetworkVolumeUpdate,
  ): Promise<NetworkVolumeRecord> {
    return this.#describeOne(caller, await this.#volumes.update(caller.userId, id, update));
  }

  async remove(caller: Rights, id: string): Promise<void> {
    await this.#volumes.remove(caller.userId, id);
  }

  #describeOne(caller: Rights, volume: StoredNetworkVolume): NetworkVolumeRecord {
    return { ...volume, ...findUses(caller, this.#users)(volume.id) };
  }

  #describe(caller: Rights, volumes: readonly StoredNetworkVolume[]): NetworkVolumeRecord[] {
    const usesOf = findUses(caller, this.#users);
    return volumes.map((volume) => ({ ...volume, ...usesOf(volume.id) }));
  }
}
