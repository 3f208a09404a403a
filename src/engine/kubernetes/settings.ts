// The operator's choices for pods on Kubernetes: a JSON file, checked as a whole before anything starts; and what a
// cluster can do for a pod within them.
import { z } from 'zod';
import {
  freeLabels,
  kubernetesLimits,
  labels,
  labelValue,
  objectName,
  toleration,
} from '../../wire/engine/kubernetes.ts';
import type { EngineCapabilities } from '../engine.ts';

const capability = z.string().regex(/^[A-Z][A-Z_]{1,30}$/, {
  error: 'must be the name of a capability without the prefix CAP_, such as NET_RAW',
});

const GB = 1_073_741_824;
const MAX_GPUS = 4_096;

const gpu = z.strictObject({
  /** Value of the node label `nvidia.com/gpu.product`; also the name that `match` in the catalog file compares. */
  product: labelValue.min(1),
  /** Most GPUs of the product that the platform may ask for at a time. */
  count: z.int().min(1).max(MAX_GPUS),
  /** GB of each; shown in the catalog. */
  memory: z.int().min(1).max(4_096).default(1),
});

export const kubernetesSettings = z.strictObject({
  /** Part of the names and labels of all objects. Default: the name in the data folder. */
  platform: z
    .string()
    .regex(/^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/, {
      error: 'must be 1 to 32 lowercase letters, digits and hyphens',
    })
    .exactOptional(),
  /** GPUs that the cluster has for this platform. Default: none. */
  gpus: z.array(gpu).max(100).default([]),
  nodeSelector: labels.default({}),
  tolerations: z.array(toleration).max(32).default([]),
  /** Extra labels of Pods. */
  labels: freeLabels.default({}),
  runtimeClass: objectName.exactOptional(),
  priorityClass: objectName.exactOptional(),
  /** For claims of persistent mounts and of workers' state. Default: the cluster's default class. */
  storageClass: objectName.exactOptional(),
  /** For claims of network volumes, which have to be ReadWriteMany. Default: `storageClass`. */
  sharedStorageClass: objectName.exactOptional(),
  /** GB of the volume for undelivered outcomes of each worker. Default: workers have none. */
  workerStateGb: z.int().min(1).max(1_024).exactOptional(),
  /** Pods may run as root in their container. `false` adds runAsNonRoot. */
  allowRoot: z.boolean().default(true),
  /**
   * Linux capabilities of a container, without the prefix CAP_; `cluster`: the default set of the container runtime.
   * Default: those of the Docker engine; none without `allowRoot`.
   */
  capabilities: z.union([z.literal('cluster'), z.array(capability).max(64)]).exactOptional(),
  /** What pods and templates may set by themselves; it replaces the settings above. Default: nothing. */
  templates: z.strictObject(kubernetesLimits.shape).prefault({}),
});
export type KubernetesSettings = z.infer<typeof kubernetesSettings>;

/** A place for each GPU that the platform may ask for: it counts them by these, the cluster chooses the devices. */
export function listGpuPlaces({ gpus }: Pick<KubernetesSettings, 'gpus'>) {
  return gpus.flatMap(({ count, memory, product }) =>
    Array.from({ length: count }, (_, index) => ({
      kind: 'gpu' as const,
      index,
      uuid: `${product}/${index}`,
      name: product,
      memoryBytes: memory * GB,
    })),
  );
}

/** The product of a GPU's place. */
export function productOf(place: string): string {
  return place.slice(0, place.lastIndexOf('/'));
}

const CAPABILITIES: Omit<EngineCapabilities, 'kubernetes'> = {
  gpus: 'type',
  gpusAtStart: true,
  // The kubelet evicts a Pod that uses more.
  disk: { keptOverStop: false, limit: 'always' },
  // The number of processes is a setting of the kubelet.
  limits: { memory: true, cpu: true, processes: false },
  globalNetworking: false,
  ports: { protocols: ['http', 'tcp', 'udp'], reach: 'cluster' },
  // The storage class decides.
  mounts: { persistent: true, network: ['name'], sizeLimit: 'some' },
  registries: true,
  healthChecks: false,
};

/** What any cluster can do for a pod, within the limits of the operator. */
export function describeCapabilities({
  templates,
}: Pick<KubernetesSettings, 'templates'>): EngineCapabilities {
  return { ...CAPABILITIES, kubernetes: templates };
}
