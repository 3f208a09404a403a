// The operator's choices for pods on Kubernetes: a JSON file, checked as a whole before anything starts.
import { z } from 'zod';

/** A part of a label's key or value, as the Kubernetes API accepts it. */
const labelValue = z.string().regex(/^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$/, {
  error: 'must be a label value: at most 63 letters, digits, ".", "_" and "-"',
});
const labelKey = z
  .string()
  .regex(/^([a-z0-9.-]{1,253}\/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/, {
    error: 'must be a label key such as team or example.com/team',
  });
const objectName = z.string().regex(/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/, {
  error: 'must be the name of a Kubernetes object',
});
const labels = z.record(labelKey, labelValue).refine((all) => Object.keys(all).length <= 32, {
  error: 'must have at most 32 entries',
});

const toleration = z.strictObject({
  key: labelKey.exactOptional(),
  operator: z.enum(['Exists', 'Equal']).exactOptional(),
  value: labelValue.exactOptional(),
  effect: z.enum(['NoSchedule', 'PreferNoSchedule', 'NoExecute']).exactOptional(),
  tolerationSeconds: z.int().min(0).exactOptional(),
});

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
  labels: labels
    .refine((all) => Object.keys(all).every((key) => !key.startsWith('millrace.dev/')), {
      error: 'must not contain labels below millrace.dev/, which the platform sets itself',
    })
    .default({}),
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
});
export type KubernetesSettings = z.infer<typeof kubernetesSettings>;

/** A place for each GPU that the platform may ask for: it counts them by these, the cluster chooses the devices. */
export function listGpuPlaces({ gpus }: Pick<KubernetesSettings, 'gpus'>) {
  return gpus.flatMap(({ count, memory, product }) =>
    Array.from({ length: count }, (_, index) => ({
      ...{ kind: 'gpu' as const, index, uuid: `${product}/${index}`, name: product },
      memoryBytes: memory * GB,
    })),
  );
}

/** The product of a GPU's place. */
export function productOf(place: string): string {
  return place.slice(0, place.lastIndexOf('/'));
}
