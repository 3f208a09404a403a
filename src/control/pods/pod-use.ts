// Says which pods use a volume or a registry.
import type { PodState } from './pod-state.ts';

/** The part of a pod that shows what it uses. */
export type PodUse = Pick<PodState, 'id' | 'userId' | 'endpointId' | 'status'> & {
  spec: Pick<PodState['spec'], 'mounts' | 'name' | 'registry'>;
};

/** Pods that a refusal lists. */
const MAX_LISTED = 10;

/** `volume`, `vol_…`, pods: `pods pod_… (RUNNING) and pod_… use the volume vol_…`. */
export function describeUses(noun: string, id: string, pods: readonly PodUse[]): string {
  const listed = pods.slice(0, MAX_LISTED).map(({ endpointId, id: pod, status }) => {
    const of = endpointId === null ? '' : `, worker of endpoint ${endpointId}`;
    return `${pod} (${status}${of})`;
  });
  const more = pods.length > MAX_LISTED ? ` and ${pods.length - MAX_LISTED} more` : '';
  const subject = pods.length === 1 ? 'the pod' : 'the pods';
  const verb = pods.length === 1 ? 'uses' : 'use';
  return `${subject} ${listed.join(', ')}${more} ${verb} the ${noun} ${id}; ${describeRemedy(pods)} first`;
}

/** A worker is not terminated by hand: its endpoint would start another one. */
function describeRemedy(pods: readonly PodUse[]): string {
  const workers = pods.filter(({ endpointId }) => endpointId !== null).length;
  const [pod, endpoint] = pods.length === 1 ? ['it', 'its endpoint'] : ['them', 'their endpoints'];
  if (workers === 0) return `terminate ${pod}`;
  if (workers === pods.length) return `change or delete ${endpoint}`;
  return 'terminate the pods, and change or delete the endpoints of the workers,';
}
