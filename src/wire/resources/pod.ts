// What a pod is: the record, what creates and changes one, and its actions. The shapes are the
// specification's (sections 2.1 to 2.6, 3.1, 4.1); which change may follow which is control/'s.
import { z } from 'zod';
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
/** Of what one variable or one string of arguments holds; what a system takes of one is not more. */
const MAX_TEXT = 131_072;

export const imageReference = z
  .string()
  .max(512)
  .regex(/^[^\s\0-]\S*$/, 'must be an image reference: no white space, no "-" in front');

/** What a system call takes: it would end at a zero character. */
const systemText = z
  .string()
  .max(MAX_TEXT)
  .refine((text) => !text.includes('\0'), 'must not contain a zero character');

export const containerArgs = systemText.describe(
  'Command line, as a shell would split it: every quote is closed, and no backslash stands at the end; where pods are processes, one without a handler needs it',
);
export const diskGb = z.int().min(1).max(65_536).describe('GB');

export const registryId = z
  .string()
  .min(1)
  .max(200)
  .describe('ID of a registry credential of yours');

/** `<port>/<protocol>`: `8000/http`, `22/tcp`. */
export const podPort = z.string().refine((text) => {
  const [, port = '0'] = /^([1-9]\d{0,4})\/(http|tcp|udp)$/.exec(text) ?? [];
  return Number(port) >= 1 && Number(port) <= MAX_PORT;
}, 'must be "<port>/<protocol>": a port from 1 to 65535, and http, tcp or udp');

export const podPorts = z
  .array(podPort)
  .max(64)
  .refine((ports) => new Set(ports).size === ports.length, 'must not name a port twice');

export const podEnv = z.record(
  z.string().regex(/^(?!__proto__$)[A-Za-z_][A-Za-z0-9_.-]*$/, 'is no name of a variable'),
  systemText,
);

const mountPath = z
  .string()
  .max(4_096)
  .refine(
    (path) =>
      /^\/[^\0:]+$/.test(path) &&
      path.split('/').some((step) => step !== '' && step !== '.') &&
      !path.split('/').includes('..'),
    'must be an absolute path below "/", without ".." and ":"',
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
    .describe('ID of a network volume of yours, in the data center of the pod'),
  path: mountPath,
});

/** Which of them go together, and what an update may change, is judged in control/mount-rules.ts. */
export const podMounts = z.strictObject({
  persistent: persistentMount.exactOptional(),
  network: z.array(networkMount).max(1).exactOptional(),
});
export type PodMounts = z.infer<typeof podMounts>;

export const gpuConfig = z.strictObject({
  id: z.string().min(1).max(200).describe('Id of a GPU type of the catalogue'),
  count: z.int().min(1).max(64).default(1).describe('at most as many as the catalogue has'),
});

export const cpuConfig = z.strictObject({
  id: z.string().min(1).max(200).describe('Id of a CPU flavour of the catalogue'),
  vcpuCount: z
    .int()
    .min(2)
    .max(1_024)
    .refine((count) => Number.isInteger(Math.log2(count)), 'must be a power of two')
    .describe("one of the flavour's `vcpuCounts`"),
  memory: z.int().min(1).max(65_536).describe("GB; at most the flavour's `maxMemory`"),
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
      .describe('ID of a template: what is not given here comes from it'),
    args: containerArgs.exactOptional(),
    disk: diskGb.exactOptional(),
    ports: podPorts.exactOptional(),
    env: podEnv.exactOptional(),
    registry: registryId.nullable().exactOptional(),
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
      .describe('ID of a data center; null: any'),
    globalNetworking: z.boolean().default(false).describe('only where pods are containers'),
    locked: z.boolean().default(false),
  })
  .refine(({ cpu, gpu }) => (cpu === undefined) !== (gpu === undefined), {
    message: 'exactly one of gpu and cpu has to be given',
    path: ['gpu'],
  })
  .refine(({ image, template }) => image !== undefined || typeof template === 'string', {
    message: 'has to be given where there is no template',
    path: ['image'],
  });
export type PodCreation = z.infer<typeof podCreation>;

/** Body of `PATCH /v2/pods/{id}`: what is left out stays. */
export const podUpdate = z.strictObject({
  name: resourceName.exactOptional(),
  image: imageReference.exactOptional(),
  args: containerArgs.exactOptional(),
  disk: diskGb
    .exactOptional()
    .describe(
      'GB; must not be smaller than it is. On Docker with quotas a larger disk is a new, empty one',
    ),
  ports: podPorts.exactOptional(),
  env: podEnv.exactOptional(),
  registry: registryId.nullable().exactOptional(),
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

/** A pod as it is shown. Times are ISO 8601, UTC. */
export const podRecord = z.object({
  id: z.string(),
  name: z.string(),
  status: z.enum(POD_STATUSES),
  actions: z.array(z.enum(POD_ACTIONS)).describe('Valid for the status as it is now'),
  image: z.string(),
  args: z.string(),
  disk: z.int().min(1).describe('GB; wiped on restart'),
  ports: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  registry: z.string().nullable(),
  mounts: podMounts,
  gpu: z.object({ id: z.string(), count: z.int().min(1) }).exactOptional(),
  cpu: z.object({ id: z.string(), vcpuCount: z.int(), memory: z.int() }).exactOptional(),
  cloud: podCloud,
  dataCenterId: z.string().nullable(),
  template: z.string().nullable(),
  cost: z
    .number()
    .describe(
      'USD an hour as it is now; 0 when EXITED, ERROR or TERMINATED, and while it waits for a GPU',
    ),
  locked: z.boolean(),
  globalNetworking: z.object({
    enabled: z.boolean(),
    ip: z.string().exactOptional(),
    internalDns: z.string().exactOptional(),
  }),
  runtime: podRuntime.nullable().describe('Null when it is not RUNNING'),
  createdAt: z.iso.datetime(),
  startedAt: z.iso.datetime().nullable(),
  endpointId: z.string().nullable().describe('Endpoint whose worker it is; null: of none'),
  reason: z
    .string()
    .nullable()
    .describe('Why it waits or what went wrong, in a sentence; null when there is nothing to say'),
});
export type PodRecord = z.infer<typeof podRecord>;

export const podList = z.object({
  pods: z.array(podRecord),
  cursor: z.string().exactOptional().describe('Of the next page; absent on the last'),
});
