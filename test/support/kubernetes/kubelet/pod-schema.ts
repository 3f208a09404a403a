// The fields of a pod that the kubelet stand-in reads.
import { z } from 'zod';
import type { KubeObject } from '../client.ts';

const quantities = z.record(z.string(), z.union([z.string(), z.number()])).default({});

const keySchema = z.looseObject({
  name: z.string(),
  key: z.string(),
  optional: z.boolean().optional(),
});

const probeSchema = z.looseObject({
  httpGet: z.looseObject({ path: z.string(), port: z.union([z.string(), z.number()]) }),
  periodSeconds: z.number().default(10),
  timeoutSeconds: z.number().default(1),
  failureThreshold: z.number().default(3),
});
export type Probe = z.infer<typeof probeSchema>;

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
        valueFrom: z
          .looseObject({
            secretKeyRef: keySchema.optional(),
            configMapKeyRef: keySchema.optional(),
            fieldRef: z.looseObject({ fieldPath: z.string() }).optional(),
          })
          .optional(),
      }),
    )
    .default([]),
  envFrom: z
    .array(z.looseObject({ configMapRef: z.looseObject({ name: z.string() }) }))
    .default([]),
  startupProbe: probeSchema.optional(),
  readinessProbe: probeSchema.optional(),
  livenessProbe: probeSchema.optional(),
  lifecycle: z
    .looseObject({
      preStop: z.looseObject({ exec: z.looseObject({ command: z.array(z.string()) }) }).optional(),
    })
    .default({}),
  securityContext: z.looseObject({ readOnlyRootFilesystem: z.boolean().default(false) }).default({
    readOnlyRootFilesystem: false,
  }),
  ports: z
    .array(
      z.looseObject({
        name: z.string().optional(),
        containerPort: z.number(),
        protocol: z.string().default('TCP'),
      }),
    )
    .default([]),
  resources: z.looseObject({ limits: quantities, requests: quantities }).default({
    limits: {},
    requests: {},
  }),
  volumeMounts: z
    .array(
      z.looseObject({
        name: z.string(),
        mountPath: z.string(),
        readOnly: z.boolean().optional(),
      }),
    )
    .default([]),
});

const specSchema = z.looseObject({
  nodeName: z.string().optional(),
  containers: z.tuple([containerSchema]),
  volumes: z
    .array(
      z.looseObject({
        name: z.string(),
        persistentVolumeClaim: z.looseObject({ claimName: z.string() }).optional(),
        secret: z
          .looseObject({ secretName: z.string(), defaultMode: z.number().optional() })
          .optional(),
        configMap: z
          .looseObject({ name: z.string(), defaultMode: z.number().optional() })
          .optional(),
      }),
    )
    .default([]),
  nodeSelector: z.record(z.string(), z.string()).default({}),
  imagePullSecrets: z.array(z.looseObject({ name: z.string() })).default([]),
  restartPolicy: z.enum(['Never', 'Always']),
  enableServiceLinks: z.boolean().default(true),
  securityContext: z
    .looseObject({
      runAsUser: z.number().optional(),
      runAsGroup: z.number().optional(),
      fsGroup: z.number().optional(),
    })
    .default({}),
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
