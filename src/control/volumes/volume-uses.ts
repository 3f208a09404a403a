// Says which endpoints and pods mount a network volume, as far as the holder of a key may read them.
import {
  MAX_LISTED_USES,
  type NetworkVolumeRecord,
  type VolumeUse,
} from '../../wire/resources/network-volume.ts';
import { listMounts } from '../endpoints/deployment.ts';
import type { LiveEndpoint } from '../endpoints/endpoint-records.ts';
import { allows, type Rights } from '../keys/rights.ts';
import type { PodUse } from '../pods/pod-state.ts';

/** Of all users. */
export interface VolumeUsers {
  listEndpoints: () => readonly Pick<LiveEndpoint, 'id' | 'userId' | 'deployment'>[];
  /** Pods that still exist, those that are being created included. */
  listPods: () => readonly PodUse[];
}

/** Reads all of them once; a pod and an endpoint mount at most one volume each. */
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
