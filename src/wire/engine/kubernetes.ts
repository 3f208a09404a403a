// What pods and templates may ask of Kubernetes, and the limits that the operator sets for that: schemas, and the
// comparison of both.
import { z } from 'zod';

/** Labels that the platform sets itself. */
const OWN_PREFIX = 'millrace.dev/';
/** The platform chooses it, by the pod's GPU type. */
const PRODUCT_LABEL = 'nvidia.com/gpu.product';
/** Entries of one list or object. */
const MAX_ENTRIES = 32;
const MAX_VALUES = 64;

/** A part of a label's key or value, as the Kubernetes API accepts it. */
export const labelValue = z.string().regex(/^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$/, {
  error: 'must be a label value: at most 63 letters, digits, ".", "_" and "-"',
});
const labelKey = z
  .string()
  .regex(/^([a-z0-9.-]{1,253}\/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/, {
    error: 'must be a label key such as team or example.com/team',
  });
export const objectName = z.string().regex(/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/, {
  error: 'must be the name of a Kubernetes object',
});
export const labels = z
  .record(labelKey, labelValue)
  .refine((all) => Object.keys(all).length <= MAX_ENTRIES, {
    error: 'must have at most 32 entries',
  });
const isFree = (key: string) => !key.startsWith(OWN_PREFIX);
const NOT_OWN = { error: 'must not contain labels below millrace.dev/, which the platform sets' };
export const freeLabels = labels.refine((all) => Object.keys(all).every(isFree), NOT_OWN);

export const toleration = z.strictObject({
  key: labelKey.exactOptional(),
  operator: z.enum(['Exists', 'Equal']).exactOptional(),
  value: labelValue.exactOptional(),
  effect: z.enum(['NoSchedule', 'PreferNoSchedule', 'NoExecute']).exactOptional(),
  tolerationSeconds: z.int().min(0).exactOptional(),
});
type Toleration = z.infer<typeof toleration>;

/** Each part only within the limits of the operator. */
export const podKubernetes = z
  .strictObject({
    nodeSelector: labels.describe('Labels that the node must have').exactOptional(),
    tolerations: z
      .array(toleration)
      .max(MAX_ENTRIES)
      .describe("Added to the operator's")
      .exactOptional(),
    labels: freeLabels.describe('Extra labels of the Pod').exactOptional(),
    runtimeClass: objectName.exactOptional(),
    priorityClass: objectName.exactOptional(),
    storageClass: objectName
      .describe("Of claims made for a persistent mount or a worker's state; existing claims stay")
      .exactOptional(),
  })
  .describe(
    "Only on the engine Kubernetes, and only what the operator allows: `capabilities.kubernetes` of the catalog's data center shows it",
  );
export type PodKubernetes = z.infer<typeof podKubernetes>;

const classes = z.array(objectName).max(MAX_ENTRIES).default([]);

/** What `kubernetes` of pods and templates may contain. Default: nothing. */
export const kubernetesLimits = z.object({
  nodeSelector: z
    .record(labelKey, z.array(labelValue).min(1).max(MAX_VALUES))
    .refine((all) => Object.keys(all).length <= MAX_ENTRIES, {
      error: 'must have at most 32 entries',
    })
    .refine((all) => !Object.hasOwn(all, PRODUCT_LABEL), {
      error: `must not contain ${PRODUCT_LABEL}, which the platform sets by the pod's GPU type`,
    })
    .describe('Allowed values for each allowed label of a node')
    .default({}),
  tolerations: z.array(toleration).max(MAX_ENTRIES).describe('Allowed only exactly so').default([]),
  labels: z
    .array(labelKey)
    .max(MAX_ENTRIES)
    .refine((all) => all.every(isFree), NOT_OWN)
    .describe('Keys of labels that may have any value')
    .default([]),
  runtimeClass: classes,
  priorityClass: classes,
  storageClass: classes,
});
export type KubernetesLimits = z.infer<typeof kubernetesLimits>;

const TOLERATION_PARTS = ['key', 'operator', 'value', 'effect', 'tolerationSeconds'] as const;
const CLASSES = ['runtimeClass', 'priorityClass', 'storageClass'] as const;

/** One sentence for each part that is not allowed, with its path, its value and what is allowed. */
export function findLimitFaults(wanted: PodKubernetes, limits: KubernetesLimits): string[] {
  return [
    ...Object.entries(wanted.nodeSelector ?? {}).flatMap(([key, value]) => {
      const path = `nodeSelector.${key}`;
      // A key such as "constructor" must not find a member of every object.
      const values = Object.hasOwn(limits.nodeSelector, key) ? limits.nodeSelector[key] : undefined;
      if (!values) return judge(path, key, Object.keys(limits.nodeSelector));
      return judge(path, value, values);
    }),
    ...(wanted.tolerations ?? []).flatMap((toleration, index) => {
      if (limits.tolerations.some((allowed) => isSame(allowed, toleration))) return [];
      const allowed = limits.tolerations.map((each) => JSON.stringify(each));
      return [refuse(`tolerations[${index}]`, JSON.stringify(toleration), allowed)];
    }),
    ...Object.keys(wanted.labels ?? {}).flatMap((key) =>
      judge(`labels.${key}`, key, limits.labels),
    ),
    ...CLASSES.flatMap((name) => {
      const value = wanted[name];
      return value === undefined ? [] : judge(name, value, limits[name]);
    }),
  ];
}

function judge(path: string, value: string, allowed: readonly string[]): string[] {
  return allowed.includes(value)
    ? []
    : [
        refuse(
          path,
          JSON.stringify(value),
          allowed.map((each) => JSON.stringify(each)),
        ),
      ];
}

function refuse(path: string, value: string, allowed: readonly string[]): string {
  const which = allowed.length > 0 ? `only ${allowed.join(', ')}` : 'nothing here';
  return `kubernetes.${path}: ${value} is not allowed; the operator allows ${which}`;
}

/** Without an operator, Kubernetes compares the value. */
function isSame(one: Toleration, other: Toleration): boolean {
  const [a, b] = [one, other].map((each): Toleration => ({ operator: 'Equal', ...each }));
  return TOLERATION_PARTS.every((part) => a?.[part] === b?.[part]);
}
