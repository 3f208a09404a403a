// Compares what a pod or template asks of Kubernetes with what the operator allows. Pure; loads no schemas.
import type { KubernetesLimits, PodKubernetes, Toleration } from './kubernetes.ts';

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
