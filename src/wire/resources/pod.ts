// Schemas of a pod: its record, the requests that create and change it, and its actions, as in the
// specification (sections 2.1 to 2.6, 3.1, 4.1). Which changes are allowed is decided in
// control/pods. The operations are in pod-operations.ts.
import { z } from 'zod';
import { podKubernetes } from '../engine/kubernetes.ts';
import { resourceName } from '../text.ts';

export const POD_STATUSES = [
  'PROVISIONING',
  'STARTING',
  'RUNNING',
  'EXITED',
  'ERROR',
  'TERMINATED',
] as const;
export type PodStatus = (typeof POD_STATUSES)[number];

export const POD_ACTIONS = ['start', 'stop', 'restart', 'terminate'] as const;
export type PodAction = (typeof POD_ACTIONS)[number];

const MAX_PORT = 65_535;
/** Most characters of one variable or argument string; operating systems accept no more. */
const MAX_TEXT = 131_072;

export const imageReference = z
  .string()
  .max(512)
  .regex(
    /^[!-,.-~][!-~]*$/,
    'must be an image reference of visible ASCII characters that does not start with "-"',
  )
  // A path of an engine's API contains it.
  .refine(
    (image) => !image.split('/').some((part) => part === '.' || part === '..'),
    'must be an image reference without "." or ".." between its slashes',
  );

/** Text for a system call, which would stop at a NUL character. */
const systemText = z
  .string()
  .max(MAX_TEXT)
  .refine((text) => !text.includes('\0'), 'must not contain a NUL character');

export const containerArgs = systemText.describe(
  'Command line, split like in a shell: every quote must be closed and the last character must not be a backslash; on the process engine, a pod without a handler needs it',
);
export const diskGb = z.int().min(1).max(65_536).describe('GB');

export const registryId = z
  .string()
  .min(1)
  .max(200)
  .describe('ID or name of one of your registries');

/** `<port>/<protocol>`: `8000/http`, `22/tcp`. */
export const podPort = z.string().refine((text) => {
  const [, port = '0'] = /^([1-9]\d{0,4})\/(http|tcp|udp)$/.exec(text) ?? [];
  return Number(port) >= 1 && Number(port) <= MAX_PORT;
}, 'must be "<port>/<protocol>" with a port from 1 to 65535 and http, tcp or udp');

export const podPorts = z
  .array(podPort)
  .max(64)
  .refine((ports) => new Set(ports).size === ports.length, 'must not contain a port twice');

/** Stands for each value in answers to a key that cannot write the variables. */
export const HIDDEN_VALUE = '***';

export const podEnv = z
  .record(
    z.string().regex(/^(?!__proto__$)[A-Za-z_][A-Za-z0-9_.-]*$/, 'is not a valid variable name'),
    systemText.refine(
      (text) => text !== HIDDEN_VALUE,
      `must not be "${HIDDEN_VALUE}", which stands for a hidden value; send the value itself`,
    ),
  )
  .describe(`Variables, by name; "${HIDDEN_VALUE}" is refused as a value`);

/** Variables in answers. */
export function shownEnv(scope: 'endpoints:write' | 'pods:write') {
  const text = `Variables, by name; each value is "${HIDDEN_VALUE}" without the scope \`${scope}\`, or if the platform lacks the key that encrypted it`;
  return z.record(z.string(), z.string()).describe(text);
}

export const mountPath = z
  .string()
  .max(4_096)
  .refine(
    (path) =>
      /^\/[^\0:]+$/.test(path) &&
      path.split('/').some((step) => step !== '' && step !== '.') &&
      !path.split('/').includes('..'),
    'must be an absolute path below "/" without ".." and ":"',
  );

/** @deprecated Host-local; does not survive its host. Prefer a network mount. */
export const persistentMount = z
  .strictObject({
    size: z.int().min(10).max(65_536).describe('GB'),
    path: mountPath,
  })
  .meta({ deprecated: true });

export const networkMount = z.strictObject({
  volumeId: z
    .string()
    .min(1)
    .max(200)
    .describe('ID or name of one of your network volumes, in the data center of the pod'),
  path: mountPath,
});

/** control/pods/pod-spec.ts checks which mounts may be combined and what an update may change. */
export const podMounts = z.strictObject({
  persistent: persistentMount.exactOptional(),
  network: z.array(networkMount).max(1).exactOptional(),
});
export type PodMounts = z.infer<typeof podMounts>;

export const gpuConfig = z.strictObject({
  id: z.string().min(1).max(200).describe('ID of a GPU type of the catalog'),
  count: z
    .int()
    .min(1)
    .max(64)
    .default(1)
    .describe('Number of GPUs; at most as many as the catalog has'),
});

export const cpuConfig = z.strictObject({
  id: z.string().min(1).max(200).describe('ID of a CPU flavor of the catalog'),
  vcpuCount: z
    .int()
    .min(2)
    .max(1_024)
    .refine((count) => Number.isInteger(Math.log2(count)), 'must be a power of two')
    .describe("One of the flavor's `vcpuCounts`"),
  memory: z.int().min(1).max(65_536).describe("GB; at most the flavor's `maxMemory`"),
});

export const podCloud = z.enum(['SECURE', 'COMMUNITY']);

/** Body of `POST /v2/pods`. Exactly one of `gpu` and `cpu`, and `image` or `template`. */
export const podCreation = z
  .strictObject({
    name: resourceName,
    image: imageReference.exactOptional(),
    template: z
      .string()
      .min(1)
      .max(200)
      .nullable()
      .exactOptional()
      .describe('ID or name of a template that provides all settings that this request omits'),
    args: containerArgs.exactOptional(),
    disk: diskGb.exactOptional(),
    ports: podPorts.exactOptional(),
    env: podEnv.exactOptional(),
    registry: registryId.nullable().exactOptional(),
    kubernetes: podKubernetes.nullable().exactOptional(),
    mounts: podMounts.default({}),
    gpu: gpuConfig.exactOptional(),
    cpu: cpuConfig.exactOptional(),
    cloud: podCloud.default('SECURE'),
    dataCenterId: z
      .string()
      .min(1)
      .max(200)
      .nullable()
      .default(null)
      .describe('ID of a data center; null means any'),
    globalNetworking: z.boolean().default(false).describe('Not available on the process engine'),
    locked: z.boolean().default(false),
  })
  .refine(({ cpu, gpu }) => (cpu === undefined) !== (gpu === undefined), {
    message: 'exactly one of gpu and cpu is required',
    path: ['gpu'],
  })
  .refine(({ image, template }) => image !== undefined || typeof template === 'string', {
    message: 'is required without a template',
    path: ['image'],
  });
export type PodCreation = z.infer<typeof podCreation>;

/** Body of `PATCH /v2/pods/{id}`; omitted members stay unchanged. */
export const podUpdate = z.strictObject({
  name: resourceName.exactOptional(),
  image: imageReference.exactOptional(),
  args: containerArgs.exactOptional(),
  disk: diskGb
    .exactOptional()
    .describe('GB; can only grow. On Docker with disk quotas, a larger disk is new and empty'),
  ports: podPorts.exactOptional(),
  env: podEnv.exactOptional(),
  registry: registryId.nullable().exactOptional(),
  kubernetes: podKubernetes.nullable().exactOptional(),
  mounts: podMounts.exactOptional(),
  locked: z.boolean().exactOptional(),
});
export type PodUpdate = z.infer<typeof podUpdate>;

/** Body of `POST /v2/pods/{id}/action`. */
export const podActionRequest = z.strictObject({ action: z.enum(POD_ACTIONS) });

const utilization = z.object({ util: z.int().min(0).max(100) });

const podRuntime = z.object({
  uptime: z.int().min(0).exactOptional().describe('Seconds since the container started'),
  gpus: z
    .array(z.object({ util: z.int().min(0).max(100), memoryUtil: z.int().min(0).max(100) }))
    .exactOptional(),
  cpu: utilization.exactOptional(),
  memory: utilization.exactOptional(),
  ports: z
    .array(
      z.object({
        private: z.int(),
        public: z.int().nullable(),
        type: z.string(),
        ip: z.string().nullable(),
      }),
    )
    .exactOptional(),
});
export type PodRuntime = z.infer<typeof podRuntime>;

/** A pod as the API returns it. Times are ISO 8601, UTC. */
export const podRecord = z.object({
  id: z.string(),
  name: z.string(),
  status: z.enum(POD_STATUSES),
  actions: z
    .array(z.enum(POD_ACTIONS))
    .describe('Actions that the current status and the engine allow'),
  image: z.string(),
  args: z.string(),
  disk: z.int().min(1).describe('GB; erased on restart'),
  ports: z.array(z.string()),
  env: shownEnv('pods:write'),
  registry: z.string().nullable(),
  kubernetes: podKubernetes.exactOptional(),
  mounts: podMounts,
  gpu: z.object({ id: z.string(), count: z.int().min(1) }).exactOptional(),
  cpu: z.object({ id: z.string(), vcpuCount: z.int(), memory: z.int() }).exactOptional(),
  cloud: podCloud,
  dataCenterId: z.string().nullable(),
  template: z.string().nullable(),
  cost: z
    .number()
    .describe(
      'Current USD per hour; 0 if EXITED, ERROR or TERMINATED, and while the pod waits for a GPU',
    ),
  locked: z.boolean(),
  globalNetworking: z.object({
    enabled: z.boolean(),
    ip: z.string().exactOptional(),
    internalDns: z.string().exactOptional(),
  }),
  runtime: podRuntime.nullable().describe('Null unless RUNNING'),
  createdAt: z.iso.datetime(),
  startedAt: z.iso.datetime().nullable(),
  endpointId: z
    .string()
    .nullable()
    .describe('Endpoint that the pod is a worker of; null if it is none'),
  node: z
    .string()
    .nullable()
    .describe(
      'Node on whose machine the pod runs; null if the platform has only one node, or if none has the container yet',
    ),
  reason: z
    .string()
    .nullable()
    .describe('Why the pod waits or what went wrong; null without a reason'),
});
export type PodRecord = z.infer<typeof podRecord>;
