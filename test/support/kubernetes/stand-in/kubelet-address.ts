// Where the kubelet of a pod's node serves its logs.
import { z } from 'zod';
import { badRequest, KubeError, type KubeObject } from '../objects.ts';
import type { ObjectStore } from './object-store.ts';
import { parsePath } from './resources.ts';

const nodeStatusSchema = z.looseObject({
  addresses: z.array(z.looseObject({ type: z.string(), address: z.string() })),
  daemonEndpoints: z.looseObject({ kubeletEndpoint: z.looseObject({ Port: z.number() }) }),
});

/** @throws KubeError if the pod has no node */
export function kubeletAddressOf(store: ObjectStore, pod: KubeObject): URL {
  const { nodeName } = z.looseObject({ nodeName: z.string().optional() }).parse(pod.spec ?? {});
  if (nodeName === undefined) throw badRequest(`pod ${pod.metadata.name} does not have a host`);
  const path = parsePath(`/api/v1/nodes/${nodeName}`);
  if (!path) throw new KubeError(404, 'NotFound', nodeName);
  const { addresses, daemonEndpoints } = nodeStatusSchema.parse(
    store.get(path.resource, undefined, nodeName).status,
  );
  const ip = addresses.find(({ type }) => type === 'InternalIP')?.address ?? '127.0.0.1';
  return new URL(`https://${ip}:${daemonEndpoints.kubeletEndpoint.Port}`);
}
