// Manages network volumes: the records of users, and those that the operator's catalog file declares.
import { hash } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import type { Store, Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  MAX_LISTED_USES,
  type NetworkVolumeCreation,
  type NetworkVolumeRecord,
  type NetworkVolumeUpdate,
  type StoredNetworkVolume,
  storedNetworkVolume,
  type VolumeUse,
} from '../../wire/resources/network-volume.ts';
import type { VolumeMeters } from '../billing/volume-meters.ts';
import type { Catalog } from '../endpoints/catalog.ts';
import type { NetworkVolume } from '../endpoints/catalog-contents.ts';
import { type LiveEndpoint, listMounts } from '../endpoints/endpoint-records.ts';
import { allows, type Rights } from '../keys/rights.ts';
import type { Quotas } from '../limits/quotas.ts';
import { describeUses, type PodUse } from '../pods/pod-state.ts';
import { StoredResources } from '../stored-resources.ts';
import type { CallerResources, ResourcePage, UserListing } from '../user-resources.ts';
import { noteRemoval } from './engine-volumes.ts';

export interface NetworkVolumesOptions {
  store: Store;
  clock: Clock;
  catalog: Pick<Catalog, 'declaredVolumes' | 'defaultDataCenter' | 'hasDataCenter'>;
  /** Pods of all users that still exist, those that are being created included. Default: none. */
  listPods?: (() => readonly PodUse[]) | undefined;
  /** Why the user may create and grow no volume. Default: nothing keeps them from it. */
  findObstacle?: ((userId: string) => string | undefined) | undefined;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
  /** Default: volumes are not billed. */
  meters?: Pick<VolumeMeters, 'follow'> | undefined;
  /** Called when a volume has grown. Default: nothing happens. */
  onGrown?: ((source: string, sizeGb: number) => void) | undefined;
  /** Called when a volume has been deleted: the engine may remove its content. Default: nothing happens. */
  onRemoved?: (() => void) | undefined;
}

export type NetworkVolumeService = StoredResources<
  NetworkVolumeCreation,
  NetworkVolumeUpdate,
  StoredNetworkVolume
>;

export function openNetworkVolumes(options: NetworkVolumesOptions): Promise<NetworkVolumeService> {
  const {
    catalog,
    clock,
    findObstacle = () => undefined,
    listPods = () => [],
    meters,
    onGrown,
    onRemoved,
    quotas,
    store,
  } = options;
  const requireBudget = (userId: string) => {
    const obstacle = findObstacle(userId);
    if (obstacle !== undefined) throw new ProblemError('over_budget', obstacle);
  };
  return StoredResources.open<NetworkVolumeCreation, NetworkVolumeUpdate, StoredNetworkVolume>({
    store,
    clock,
    quotas,
    name: 'networkVolumes',
    prefix: 'vol',
    record: storedNetworkVolume,
    declared: (userId) => catalog.declaredVolumes(userId),
    rules: {
      compose: ({ createdAt, id }, { dataCenterId, name, size }) => {
        const place = dataCenterId ?? catalog.defaultDataCenter;
        // A catalog has a data center.
        return { id, name, size, dataCenterId: place ?? '', declared: false, createdAt };
      },
      change(before, update, userId) {
        const after = change(before, update);
        if (after.size !== before.size) requireBudget(userId);
        return after;
      },
      admit(userId, given) {
        if (!('dataCenterId' in given)) return;
        const { dataCenterId: id } = given;
        if (id !== null && !catalog.hasDataCenter(id)) {
          throw refuse(`dataCenterId: data center ${JSON.stringify(id)} not found`);
        }
        requireBudget(userId);
      },
      admitRemoval(userId, id) {
        const users = listPods().filter(
          (pod) =>
            pod.userId === userId && pod.spec.mounts.network?.some((each) => each.volumeId === id),
        );
        if (users.length > 0) throw new ProblemError('conflict', describeUses('volume', id, users));
      },
      judgeRemoval(tx: Transaction, id, userId) {
        const users = listMounting(tx, userId, id);
        if (users.length > 0) {
          const listed = users.slice(0, MAX_LISTED).join(', ');
          const more =
            users.length > MAX_LISTED ? ` and ${users.length - MAX_LISTED} more endpoints` : '';
          const remedy = 'set networkVolumeId of each to null, or delete them, first';
          const detail = `the workers of ${listed}${more} mount the volume ${id}; ${remedy}`;
          throw new ProblemError('conflict', detail);
        }
        noteRemoval(tx, { id, userId, source: nameSource(userId, id) });
      },
      noteChanged(userId, { after: { id, size }, before }) {
        if (size !== null && size !== before.size) onGrown?.(nameSource(userId, id), size);
      },
      ...(onRemoved && { noteRemoved: onRemoved }),
      ...(meters && { follow: (tx, change) => meters.follow(tx, change) }),
    },
  });
}

/** Engines allow few characters in a name, and two users may use the same ID for declared volumes. */
export function nameSource(userId: string, id: string): string {
  return `network-${hash('sha256', JSON.stringify([userId, id]), 'hex').slice(0, 24)}`;
}

/** The volume as pods mount it; undefined if it is declared, being removed, or not the user's. */
export function findMountable(
  volumes: Pick<NetworkVolumeService, 'findUsable'>,
  userId: string,
  id: string,
): NetworkVolume | undefined {
  const found = volumes.findUsable(userId, id);
  if (!found || found.declared) return undefined;
  const { dataCenterId, size } = found;
  const source = nameSource(userId, id);
  return { id, name: found.name, dataCenterId, source, ...(size !== null && { sizeGb: size }) };
}

/** Names and IDs. In the commit, so that no endpoint begins to use the volume meanwhile. */
function listMounting(tx: Transaction, userId: string, volumeId: string): string[] {
  const endpoints = tx.endpoints();
  return endpoints.flatMap(({ deleted, deployment, id, userId: owner }) => {
    const isUser = owner === userId && deployment?.networkVolumeId === volumeId;
    return isUser && !deleted ? [`endpoint ${deployment.name} (${id})`] : [];
  });
}

/** Endpoints that a refusal lists. */
const MAX_LISTED = 10;

/** @throws ProblemError `invalid` for a volume that would shrink */
function change(volume: StoredNetworkVolume, update: NetworkVolumeUpdate): StoredNetworkVolume {
  const { size = volume.size } = update;
  if (volume.size !== null && size !== null && size < volume.size) {
    throw refuse(`size: can only grow; the volume has ${volume.size} GB`);
  }
  return { ...volume, ...update, size };
}

function refuse(fault: string): ProblemError {
  return new ProblemError('invalid', fault, { errors: [fault] });
}

/**
 * The API of network volumes: the records of the caller's user, with the endpoints and pods that mount each.
 */
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

/** Of all users. */
export interface VolumeUsers {
  listEndpoints: () => readonly Pick<LiveEndpoint, 'id' | 'userId' | 'deployment'>[];
  /** Pods that still exist, those that are being created included. */
  listPods: () => readonly PodUse[];
}

/**
 * Which endpoints and pods mount a volume, as far as the holder of a key may read them. Reads all of them once; a pod and
 * an endpoint mount at most one volume each.
 */
export function findUses(
  caller: Rights,
  users: VolumeUsers,
): (volumeId: string) => Pick<NetworkVolumeRecord, 'useCount' | 'uses'> {
  const found = new Map<string, VolumeUse[]>();
  const note = (volumeId: string, use: VolumeUse) => {
    found.set(volumeId, [...(found.get(volumeId) ?? []), use]);
  };
  for (const { deployment, id, userId } of users.listEndpoints()) {
    if (userId !== caller.userId || !deployment || !allows(caller, 'endpoints:read', id)) continue;
    for (const { path, volumeId } of listMounts(deployment).network ?? [])
      note(volumeId, { kind: 'endpoint', id, name: deployment.name, ...OF_ENDPOINT, path });
  }
  const pods = new Map(users.listPods().map((pod) => [pod.id, pod]));
  for (const { endpointId, id, spec, status, userId } of sortWorkersLast([...pods.values()])) {
    if (userId !== caller.userId) continue;
    for (const { path, volumeId } of spec.mounts.network ?? [])
      note(volumeId, { kind: 'pod', id, name: spec.name, status, endpointId, path });
  }
  return (volumeId) => {
    const uses = found.get(volumeId) ?? [];
    return { useCount: uses.length, uses: uses.slice(0, MAX_LISTED_USES) };
  };
}

const OF_ENDPOINT = { status: null, endpointId: null };

function sortWorkersLast(pods: readonly PodUse[]): PodUse[] {
  const isWorker = ({ endpointId }: PodUse) => endpointId !== null;
  return [...pods.filter((pod) => !isWorker(pod)), ...pods.filter(isWorker)];
}
