// Which endpoints and pods a network volume's record lists, and who sees them.
import { describe, expect, it } from 'vitest';
import { splitCreation } from '../../../../src/control/endpoints/endpoint-records.ts';
import type { PodUse } from '../../../../src/control/pods/pod-state.ts';
import { findUses } from '../../../../src/control/volumes/network-volumes.ts';
import { endpointCreation } from '../../../../src/wire/resources/endpoint.ts';
import { MAX_LISTED_USES } from '../../../../src/wire/resources/network-volume.ts';

const VOLUME = 'vol_1';

function rights(...scopes: string[]) {
  return { userId: 'ada', scopes: new Set(scopes), expiresAt: null };
}

function endpoint(id: string, userId = 'ada', networkVolumeId: string | null = VOLUME) {
  const creation = endpointCreation.parse({ name: `n-${id}`, templateId: 't', networkVolumeId });
  return { ...splitCreation(creation), id, userId };
}

function pod(id: string, given: Partial<PodUse> = {}): PodUse {
  return {
    ...{ id, userId: 'ada', endpointId: null, status: 'EXITED' },
    spec: {
      ...{ name: `n-${id}`, registry: null },
      mounts: { network: [{ volumeId: VOLUME, path: '/data' }] },
    },
    ...given,
  };
}

const USERS = {
  listEndpoints: () => [
    endpoint('ep_1'),
    endpoint('ep_2'),
    endpoint('ep_3', 'ada', null),
    endpoint('ep_4', 'bob'),
  ],
  listPods: () => [
    pod('pod_worker', { endpointId: 'ep_1', status: 'RUNNING' }),
    pod('pod_own'),
    pod('pod_bob', { userId: 'bob' }),
    // A pod that is being changed is there twice.
    pod('pod_own', { status: 'RUNNING' }),
  ],
};

describe('the uses of a network volume', () => {
  it('are its endpoints, then pods, then workers, all of the same user', () => {
    const found = findUses(rights('admin'), USERS)(VOLUME);
    const ofEndpoint = { kind: 'endpoint', status: null, endpointId: null };
    const ofPod = { kind: 'pod', status: 'RUNNING', path: '/data' };
    expect(found).toEqual({
      useCount: 4,
      uses: [
        { ...ofEndpoint, id: 'ep_1', name: 'n-ep_1', path: '/runpod-volume' },
        { ...ofEndpoint, id: 'ep_2', name: 'n-ep_2', path: '/runpod-volume' },
        { ...ofPod, id: 'pod_own', name: 'n-pod_own', endpointId: null },
        { ...ofPod, id: 'pod_worker', name: 'n-pod_worker', endpointId: 'ep_1' },
      ],
    });
    expect(findUses(rights('admin'), USERS)('vol_2')).toEqual({ useCount: 0, uses: [] });
  });

  it.each([
    [['pods:read'], ['pod_own', 'pod_worker']],
    [
      ['pods:read', 'endpoints:read:ep_2'],
      ['ep_2', 'pod_own', 'pod_worker'],
    ],
  ])('have only the endpoints that a key with %j may read', (scopes, ids) => {
    const { useCount, uses } = findUses(rights(...scopes), USERS)(VOLUME);
    expect(uses.map(({ id }) => id)).toEqual(ids);
    expect(useCount).toBe(ids.length);
  });

  it('are bounded, and counted all the same', () => {
    const listPods = () => Array.from({ length: MAX_LISTED_USES + 5 }, (_, n) => pod(`pod_${n}`));
    const { useCount, uses } = findUses(rights('admin'), { ...USERS, listPods })(VOLUME);
    expect(uses).toHaveLength(MAX_LISTED_USES);
    expect(useCount).toBe(MAX_LISTED_USES + 7);
  });
});
