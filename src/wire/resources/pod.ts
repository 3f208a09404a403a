// Schemas of a pod: its record, the requests that create and change it, and its actions, as in the
// specification (sections 2.1 to 2.6, 3.1, 4.1); its operations. control/pods decides which changes are allowed.
import { z } from 'zod';
import { podKubernetes } from '../engine/kubernetes.ts';
import { shownStartParts } from '../job/job-records.ts';
import { PARK_WAYS } from '../link/worker-link.ts';
import { answerJson, bodyJson, describeOperations } from '../operations/operation.ts';
import { describeResource } from '../operations/resource.ts';
import { POD_ROUTES, RESOURCES } from '../routes/routes.ts';
import { creationShape, recordShape, updateShape } from './field-schemas.ts';
import { HIDDEN_VALUE, MAX_SYSTEM_TEXT, MOUNT_PATH_RULE, POD_FIELDS } from './fields.ts';

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

/** Text for a system call, which would stop at a NUL character. */
const systemText = z
  .string()
  .max(MAX_SYSTEM_TEXT)
  .refine((text) => !text.includes('\0'), 'must not contain a NUL character');

export const podEnv = z
  .record(
    z.string().regex(/^(?!__proto__$)[A-Za-z_][A-Za-z0-9_.-]*$/, 'is not a valid variable name'),
    systemText.refine(
      (text) => text !== HIDDEN_VALUE,
      `must not be "${HIDDEN_VALUE}", which stands for a hidden value; send the value itself`,
    ),
  )
  .describe(POD_FIELDS.env.text);

/** Variables in answers. */
export function shownEnv(scope: 'endpoints:write' | 'pods:write') {
  const text = `Variables, by name; each value is "${HIDDEN_VALUE}" without the scope \`${scope}\`, or if the platform lacks the key that encrypted it`;
  return z.record(z.string(), z.string()).describe(text);
}

const mountPath = z.string().max(4_096).refine(MOUNT_PATH_RULE.holds, MOUNT_PATH_RULE.message);

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

/** Body of `POST /v2/pods`. Exactly one of `gpu` and `cpu`, and `image` or `template`. */
export const podCreation = z
  .strictObject({
    ...creationShape(POD_FIELDS),
    env: podEnv.exactOptional(),
    kubernetes: podKubernetes.nullable().exactOptional(),
    mounts: podMounts.default({}),
    gpu: gpuConfig.exactOptional(),
    cpu: cpuConfig.exactOptional(),
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
  ...updateShape(POD_FIELDS),
  env: podEnv.exactOptional(),
  kubernetes: podKubernetes.nullable().exactOptional(),
  mounts: podMounts.exactOptional(),
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

export const WORKER_EVENTS = [
  'started',
  'model_started',
  'parking',
  'parked',
  'waking',
  'woken',
] as const;

/** What is said of an event besides its time. */
export const workerEvent = z.object({
  event: z
    .enum(WORKER_EVENTS)
    .describe(
      '`started`: the worker was ready. `model_started`: a model process was, which the worker started later. `parking`, `parked`: its models ' +
        'left the GPU. `waking`, `woken`: they came back',
    ),
  parts: shownStartParts
    .exactOptional()
    .describe('Of `started` and `model_started`: where the time of the start went'),
  ms: z
    .int()
    .min(0)
    .exactOptional()
    .describe('Of `parked`: time since `parking`. Of `woken`: time since `waking`'),
  bytes: z
    .int()
    .min(0)
    .exactOptional()
    .describe('Of `parked` and `woken`: GPU memory that the models had; 0: they ended'),
  way: z
    .enum([...PARK_WAYS, 'cold'])
    .exactOptional()
    .describe('Of `parked` and `woken`: `cold`: the models ended, and started anew'),
});
export type WorkerEvent = z.infer<typeof workerEvent>;

/** A pod as the API returns it. Times are ISO 8601, UTC. */
export const podRecord = z.object({
  id: z.string(),
  ...recordShape(POD_FIELDS),
  status: z.enum(POD_STATUSES),
  actions: z
    .array(z.enum(POD_ACTIONS))
    .describe('Actions that the current status and the engine allow'),
  disk: z.int().min(1).describe('GB; erased on restart'),
  env: shownEnv('pods:write'),
  kubernetes: podKubernetes.exactOptional(),
  mounts: podMounts,
  gpu: z.object({ id: z.string(), count: z.int().min(1) }).exactOptional(),
  cpu: z.object({ id: z.string(), vcpuCount: z.int(), memory: z.int() }).exactOptional(),
  cost: z
    .number()
    .describe(
      'Current USD per hour; 0 if EXITED, ERROR or TERMINATED, while the pod waits for a GPU, and while it is parked',
    ),
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
  parked: z
    .object({ since: z.iso.datetime(), bytes: z.int() })
    .exactOptional()
    .describe(
      'Set while the worker is parked: its GPU is free for others. `bytes`: GPU memory that its model has left; 0: the model has ended, and starts anew at the wake',
    ),
  timeline: z
    .array(workerEvent.extend({ at: z.iso.datetime() }))
    .exactOptional()
    .describe(
      'Of a worker: its start and its last 19 events, the oldest first; absent if it has told none',
    ),
  reason: z
    .string()
    .nullable()
    .describe('Why the pod waits or what went wrong; null without a reason'),
});
export type PodRecord = z.infer<typeof podRecord>;

/** Without an engine, every operation on pods is a conflict. */
const NO_ENGINE = [409];

/** Bytes of a pod's log in one answer. */
export const LOG_BYTES = { min: 1, max: 1_048_576, default: 65_536 };

const EXAMPLE: PodRecord = {
  id: 'pod_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d75',
  name: 'notebook',
  status: 'RUNNING',
  actions: ['stop', 'restart', 'terminate'],
  image: 'registry.example.com/notebook:3',
  args: '',
  disk: 20,
  ports: ['8888/http'],
  env: { LOG_LEVEL: 'info' },
  registry: null,
  mounts: {},
  gpu: { id: 'NVIDIA H200', count: 1 },
  cloud: 'SECURE',
  dataCenterId: null,
  template: null,
  cost: 3.59,
  locked: false,
  globalNetworking: { enabled: false },
  runtime: {
    uptime: 3_600,
    gpus: [{ util: 87, memoryUtil: 62 }],
    cpu: { util: 12 },
    memory: { util: 40 },
    ports: [{ private: 8_888, public: 20_001, type: 'http', ip: '203.0.113.7' }],
  },
  createdAt: '2026-01-15T09:30:00.000Z',
  startedAt: '2026-01-15T09:30:20.000Z',
  endpointId: null,
  node: null,
  reason: null,
};

export const pods = describeResource({
  outline: RESOURCES.pods,
  about: 'Containers, one by one.',
  record: podRecord,
  creation: podCreation,
  update: podUpdate,
  texts: {
    create: { summary: 'Create and start a pod' },
    update: {
      summary: 'Update a pod; omitted fields keep their value',
      description:
        'A change of `name`, `locked` or of the size of a persistent mount keeps the container. So does a ' +
        'larger `disk` on the process engine, and on Docker if the storage driver has no quotas. Any other ' +
        'change replaces the container: its disk is lost, its mounts are kept.',
    },
    delete: { summary: 'Terminate a pod' },
  },
  created: {
    201: {
      ...answerJson(podRecord, 'The pod is PROVISIONING.', {
        ...EXAMPLE,
        status: 'PROVISIONING',
        actions: ['terminate'],
        runtime: null,
        startedAt: null,
      })[200],
      headers: ['Location'],
    },
  },
  examples: {
    record: EXAMPLE,
    creation: {
      name: 'notebook',
      image: 'registry.example.com/notebook:3',
      ports: ['8888/http'],
      env: { LOG_LEVEL: 'info' },
      gpu: { id: 'NVIDIA H200', count: 1 },
    },
    update: { name: 'notebook of Ada', locked: true },
  },
  refusals: NO_ENGINE,
});

export const podList = pods.list;

export const POD_OPERATIONS = describeOperations('pods', POD_ROUTES, {
  actOnPod: {
    summary: 'Start, stop, restart or terminate a pod',
    description:
      '`actions` of the pod are those that its status and the engine allow. Another one is a 409, or a 422 if the engine lacks it.',
    body: bodyJson(podActionRequest, { action: 'restart' }),
    answers: {
      ...answerJson(podRecord, 'The pod.', EXAMPLE),
      204: { description: 'Terminated.' },
    },
    refusals: NO_ENGINE,
  },
  getPodLog: {
    summary: "Show the end of a pod's output",
    query: [
      {
        name: 'bytes',
        schema: z.int().min(LOG_BYTES.min).max(LOG_BYTES.max).default(LOG_BYTES.default),
        description: 'Maximum number of bytes, counted from the end',
      },
    ],
    answers: {
      200: {
        description:
          'Text, as it was printed. `Millrace-Truncated` says that output before it was left out; a character may be cut at the start.',
        headers: ['Millrace-Truncated'],
        content: { 'text/plain': { schema: z.string(), example: 'Listening on port 8888\n' } },
      },
    },
    refusals: NO_ENGINE,
  },
});
