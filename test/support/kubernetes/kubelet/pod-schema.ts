// The fields of a pod that the kubelet stand-in reads.
import { z } from 'zod';
import type { KubeObject } from '../objects.ts';

const quantities = z.record(z.string(), z.union([z.string(), z.number()])).default({});

const keySchema = z.looseObject({
  name: z.string(),
  key: z.string(),
  optional: z.boolean().optional(),
});

const containerSchema = z.looseObject({
  name: z.string(),
  image: z.string(),
  command: z.array(z.string()).default([]),
  args: z.array(z.string()).default([]),
  env: z
    .array(
      z.looseObject({
        name: z.string(),
        value: z.string().optional(),
        valueFrom: z.looseObject({ secretKeyRef: keySchema.optional() }).optional(),
      }),
    )
    .default([]),
  ports: z
    .array(z.looseObject({ containerPort: z.number(), protocol: z.string().default('TCP') }))
    .default([]),
  resources: z.looseObject({ limits: quantities, requests: quantities }).default({
    limits: {},
    requests: {},
  }),
  volumeMounts: z.array(z.looseObject({ name: z.string(), mountPath: z.string() })).default([]),
});

const specSchema = z.looseObject({
  nodeName: z.string().optional(),
  containers: z.tuple([containerSchema]),
  volumes: z
    .array(
      z.looseObject({
        name: z.string(),
        persistentVolumeClaim: z.looseObject({ claimName: z.string() }).optional(),
      }),
    )
    .default([]),
  nodeSelector: z.record(z.string(), z.string()).default({}),
  imagePullSecrets: z.array(z.looseObject({ name: z.string() })).default([]),
  restartPolicy: z.literal('Never'),
  activeDeadlineSeconds: z.number().optional(),
  terminationGracePeriodSeconds: z.number().default(30),
});

const statusSchema = z.looseObject({
  phase: z.string().default('Pending'),
  startTime: z.string().optional(),
});

export type PodSpec = z.infer<typeof specSchema>;
export type PodContainer = PodSpec['containers'][0];

export interface Pod {
  name: string;
  namespace: string;
  uid: string;
  /** Seconds; undefined: nobody has deleted the pod. */
  deletionSeconds: number | undefined;
  phase: string;
  spec: PodSpec;
}

/** @throws ZodError for a pod that the stand-in cannot run: several containers, or restarts */
export function parsePod({ metadata, spec, status }: KubeObject): Pod {
  const { deletionGracePeriodSeconds, deletionTimestamp, name, namespace = '', uid } = metadata;
  return {
    name,
    namespace,
    uid,
    deletionSeconds: deletionTimestamp ? (deletionGracePeriodSeconds ?? 0) : undefined,
    phase: statusSchema.parse(status ?? {}).phase,
    spec: specSchema.parse(spec),
  };
}

export function podPath({ name, namespace }: Pick<Pod, 'name' | 'namespace'>): string {
  return `/api/v1/namespaces/${namespace}/pods/${name}`;
}
