// The fields that users set, of every resource: each field once. Its schema, its place in the OpenAPI document, its type in
// the client, its flag, its help and its form field follow from the entry. Clients load this file, so it loads no zod.
import { LIMITS } from '../job/job.ts';
import { isWebhookUrl, MAX_WEBHOOK_CHARACTERS } from '../webhook.ts';
import type { Fields } from './field.ts';

/** Characters of an ID or a name that refers to another resource. */
const MAX_REFERENCE = 200;
const MAX_GB = 65_536;
/** Most characters of one variable or argument string; operating systems accept no more. */
export const MAX_SYSTEM_TEXT = 131_072;

const isDifferent = (values: readonly string[]) => new Set(values).size === values.length;

/** Path segments that the pod API and RunPod's REST API use below `/v2/`. */
export const RESERVED_ENDPOINT_IDS: readonly string[] = [
  ...['pods', 'catalog', 'serverless', 'templates', 'network-volumes'],
  ...['registries', 'billing', 'clusters', 'account'],
];

/** No endpoint is found by it, neither as an ID nor as a name. */
export function isReserved(idOrName: string): boolean {
  return RESERVED_ENDPOINT_IDS.includes(idOrName);
}

/** Of an ID; a name can be any text. */
export const ENDPOINT_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

/** Where RunPod mounts the volume of an endpoint, so that its images find their files. */
export const DEFAULT_VOLUME_PATH = '/runpod-volume';

export const ENDPOINT_TYPES = ['QUEUE', 'LOAD_BALANCER'] as const;
export type EndpointType = (typeof ENDPOINT_TYPES)[number];

const HANDLER_SOURCES = ['TEMPLATE', 'VERSION'] as const;
export type HandlerSource = (typeof HANDLER_SOURCES)[number];

/** Absolute and below the root, because containers get a folder of their own there. */
export const MOUNT_PATH_RULE = {
  message: 'must be an absolute path below "/" without ".." and ":"',
  holds: (path: string) =>
    /^\/[^\0:]+$/.test(path) &&
    path.split('/').some((step) => step !== '' && step !== '.') &&
    !path.split('/').includes('..'),
};

/** How the platform runs the workers of an endpoint. */
export const WORKER_FIELDS = {
  name: {
    kind: 'name',
    text: 'Name of the endpoint; also its address if it is a DNS label, such as my-model',
    rules: [
      { message: 'is a path of the API; choose another name', holds: (name) => !isReserved(name) },
    ],
    label: 'Name',
    example: 'echo',
  },
  type: {
    kind: 'choice',
    choices: ENDPOINT_TYPES,
    text: 'Whether the endpoint has a queue of jobs, or forwards HTTP requests to its workers',
    default: 'QUEUE',
    isFixed: true,
    label: 'Type',
  },
  templateId: {
    kind: 'text',
    max: MAX_REFERENCE,
    text: 'ID or name of one of your templates; for a load-balancing endpoint with an http port; on the process engine with args or a handler',
    flag: 'template',
    placeholder: 'ID',
    help: "ID or name of the template for the endpoint's workers",
    label: 'Template',
    refersTo: 'templates',
    example: 'tpl_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70',
  },
  gpuTypeIds: {
    kind: 'list',
    max: 100,
    maxText: 200,
    rules: [{ message: 'must name each GPU type once', holds: isDifferent }],
    text: 'IDs of GPU types, the preferred one first; empty for workers without a GPU',
    default: [],
    flag: 'gpu',
    placeholder: 'ID',
    help: 'GPU type of the workers, from `millrace catalog gpus`; repeat in order of preference',
    label: 'GPU types',
    refersTo: 'gpus',
    example: ['NVIDIA H200'],
  },
  workersMin: {
    kind: 'integer',
    min: 0,
    max: 1_000,
    text: 'Minimum number of workers, even without load; at most the maximum',
    default: 0,
    label: 'Minimum workers',
  },
  workersSchedule: {
    kind: 'windows',
    max: 16,
    maxText: 200,
    workersMin: { min: 1, max: 1_000 },
    forMs: { min: 60_000, max: 31 * 86_400_000 },
    text: 'Windows of time in which the minimum is higher; the highest of those that are open holds',
    help: 'windows in which the minimum is higher, as JSON: [{"cron":"0 8 * * *","workersMin":2,"forMs":36000000}]',
    default: [],
    placeholder: 'JSON',
    label: 'Minimum by time',
  },
  workersMax: {
    kind: 'integer',
    min: 0,
    max: 1_000,
    text: 'Maximum number of workers; 0 switches the endpoint off',
    default: 3,
    label: 'Maximum workers',
    example: 4,
  },
  idleTimeout: {
    kind: 'integer',
    min: 1,
    max: 86_400,
    text: 'Seconds after which an idle worker ends, or is parked if its model can leave the GPU',
    default: 5,
    placeholder: 'S',
    label: 'Idle timeout, s',
    example: 30,
  },
  retryOutOfMemoryOn: {
    kind: 'choice',
    choices: ['ANY_GPU_TYPE', 'NEXT_GPU_TYPE'],
    text:
      'After an attempt that ran out of GPU memory: `NEXT_GPU_TYPE` lets only workers of a later type in `gpuTypeIds` take ' +
      'the job, and starts one; the attempt counts. After the last type, or with `ANY_GPU_TYPE`, any worker may take it',
    help: 'workers that may take a job after it ran out of GPU memory: those of a later type in the order of --gpu, or any',
    default: 'ANY_GPU_TYPE',
  },
  gpuWeight: {
    kind: 'integer',
    min: 1,
    max: 100,
    text: 'Share of GPUs that several endpoints of a user want at once: one with twice the weight gets twice the GPU time',
    default: 1,
    label: 'Weight for GPUs',
  },
  minResidenceMs: {
    kind: 'integer',
    min: 0,
    max: 3_600_000,
    text: 'Shortest time for which a ready worker keeps its GPU before it gives way to jobs of another endpoint, ms',
    default: 1_000,
    placeholder: 'MS',
    label: 'GPU kept at least, s',
    formUnit: 1_000,
  },
  parkSeconds: {
    kind: 'integer',
    min: 0,
    max: 7 * 86_400,
    text: 'Seconds for which a worker may stay parked, with its model in the memory of the host, before it ends; 0: it ends instead of being parked. Spare workers stay',
    default: 3_600,
    placeholder: 'S',
    label: 'Parked at most, s',
  },
  spareWorkers: {
    kind: 'integer',
    min: 0,
    max: 100,
    text: 'Workers beside the others that start ahead of load, do their setup, and stay parked until they are needed; they take no job while they are spare',
    default: 0,
    label: 'Spare workers',
  },
  yields: {
    kind: 'switch',
    text: 'Workers within the minimum give way to jobs of other endpoints too; the minimum starts again when a GPU is free',
    default: false,
    help: 'workers within the minimum give way to jobs of other endpoints too',
    label: 'Minimum gives way',
  },
  preemptible: {
    kind: 'switch',
    text:
      'More urgent jobs of your other endpoints may suspend running attempts: their model goes to the memory of the host, and ' +
      'goes on later where it was. Needs one GPU and NVIDIA driver 570 or newer',
    help: 'whether more urgent jobs of your other endpoints may suspend running attempts',
    default: false,
    label: 'May be suspended',
  },
  preemptAbovePriority: {
    kind: 'integer',
    min: 0,
    max: 8,
    text:
      'Jobs with a `policy.priority` above this are urgent: if no GPU is free, they may suspend running attempts of lower priority ' +
      'of your preemptible endpoints',
    null: 'no job is urgent',
    default: null,
    label: 'Urgent above priority',
  },
  maxSuspensions: {
    kind: 'integer',
    min: 0,
    max: 1_000,
    text: 'How often one attempt of a preemptible endpoint may be suspended',
    default: 20,
    label: 'Suspensions of an attempt',
  },
  maxSuspendedSeconds: {
    kind: 'integer',
    min: 1,
    max: 86_400,
    text: 'Seconds for which one attempt of a preemptible endpoint may be suspended in all; then it gets its GPU back, after the jobs that run there',
    default: 600,
    placeholder: 'S',
    label: 'Suspended at most, s',
  },
  networkVolumeId: {
    kind: 'text',
    max: MAX_REFERENCE,
    text: 'ID or name of the network volume that all workers mount',
    null: 'none',
    default: null,
    flag: 'networkVolume',
    placeholder: 'ID',
    label: 'Network volume',
    refersTo: 'networkVolumes',
    example: 'vol_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70',
  },
  networkVolumePath: {
    kind: 'text',
    max: 4_096,
    rules: [MOUNT_PATH_RULE],
    text: 'Where workers mount the network volume; on the process engine below the folder in which they start',
    default: DEFAULT_VOLUME_PATH,
    placeholder: 'PATH',
    label: 'Volume path',
  },
  source: {
    kind: 'choice',
    choices: HANDLER_SOURCES,
    text:
      '`TEMPLATE`: workers run the handler, or the image and args, of the template. `VERSION`: they run the ' +
      'deployed version of the handler, so none starts before one is deployed. Deploying a version sets it',
    default: 'TEMPLATE',
    isFixed: true,
    flag: null,
  },
} as const satisfies Fields;

export const HISTORY_POLICIES = ['OFF', 'RECORD', 'FULL'] as const;
export type HistoryPolicy = (typeof HISTORY_POLICIES)[number];

const RATE = {
  kind: 'rate',
  max: 1_000_000,
  perMs: { min: 100, max: 7 * 86_400_000 },
  null: 'no limit',
  default: null,
  placeholder: 'MAX/TIME',
} as const;

/** What an endpoint does with its jobs; declared endpoints have these too. */
export const JOB_FIELDS = {
  executionTimeout: {
    kind: 'integer',
    ...LIMITS.executionTimeoutMs,
    text: 'Default execution timeout of a job, or of the response headers of a load-balanced request, in milliseconds',
    default: 600_000,
    placeholder: 'MS',
    label: 'Execution timeout, s',
    formUnit: 1_000,
  },
  maxAttempts: {
    kind: 'integer',
    min: 1,
    max: 100,
    text: 'Failed attempts after which a job is FAILED; 1: no automatic retry',
    default: 3,
    label: 'Attempts',
  },
  retry: {
    kind: 'retry',
    text: 'Whether and when failed jobs are retried. Policies of the handler and the job override it, member by member',
    help: 'retry policy as JSON, such as {"backoff":"fixed","delayMs":5000}',
    null: 'after 1 s, 2 s, 4 s …, at most 60 s',
    default: null,
    placeholder: 'JSON',
    label: 'Retries',
  },
  webhook: {
    kind: 'text',
    max: MAX_WEBHOOK_CHARACTERS,
    rules: [
      {
        message: 'must be an http or https URL without a user name or password',
        holds: isWebhookUrl,
      },
    ],
    text: 'URL to which the platform posts the final record of each job that has no webhook of its own; must be a public address unless the operator allows others',
    help: 'URL that receives the record of each job that has no webhook of its own',
    null: 'none',
    default: null,
    placeholder: 'URL',
    label: 'Webhook',
  },
  failedRetention: {
    kind: 'integer',
    min: 0,
    max: 30 * 86_400_000,
    text: 'How long failed jobs are kept as dead letters after their end, with input, error, timeline and log, ms; 0: not beyond their retention',
    default: 7 * 86_400_000,
    placeholder: 'MS',
    label: 'Failed jobs kept, days',
    formUnit: 86_400_000,
  },
  history: {
    kind: 'choice',
    choices: HISTORY_POLICIES,
    text:
      'What the platform keeps of each ended job beyond its retention, as a line in a file of the operator: `RECORD` has times, ' +
      'status, error and usage; `FULL` also input and output, if they are small',
    help: 'what the files of history keep of ended jobs: RECORD, or with input and output FULL',
    null: 'as the operator has set it',
    default: null,
    label: 'History',
  },
  maxQueued: {
    kind: 'integer',
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
    text: 'Maximum number of waiting jobs, delayed ones included; run and runsync reject more',
    default: 100_000,
    label: 'Queue length',
  },
  groupConcurrency: {
    kind: 'integer',
    min: 1,
    // As many jobs as a platform could lease at once.
    max: 1_000_000,
    text: 'Most jobs of one `policy.group` that workers run at once',
    help: 'most jobs of one group that workers run at once',
    null: 'any number',
    default: null,
    label: 'Jobs of a group',
  },
  groupWeights: {
    kind: 'weights',
    max: 256,
    maxText: 64,
    maxWeight: 1_000,
    text: 'Shares of groups: a group with weight 3 gets three times the GPU time of one with 1, which is the weight of all others',
    help: 'shares of the GPU time as JSON, such as {"customer-7":3}; all other groups have 1',
    null: 'equal shares',
    default: null,
    placeholder: 'JSON',
    label: 'Weights of groups',
  },
  rateLimit: {
    ...RATE,
    text: 'Most jobs that start in any time of a length; a retry counts again',
    help: 'most jobs that start in any time of a length, such as 100/1m (ms, s, m, h, d)',
    label: 'Jobs per time',
  },
  groupRateLimit: {
    ...RATE,
    text: 'The same for the jobs of each `policy.group`',
    help: 'the same for the jobs of each group',
    label: 'Jobs of a group per time',
  },
  limits: {
    kind: 'list',
    max: 5,
    maxText: MAX_REFERENCE,
    rules: [{ message: 'must name each shared limit once', holds: isDifferent }],
    text: 'IDs or names of your shared limits: a job starts only if each of them lets it start',
    help: 'ID or name of a shared limit that a job needs to start; repeat for up to five',
    default: [],
    flag: 'sharedLimit',
    placeholder: 'ID',
    label: 'Shared limits',
    refersTo: 'sharedLimits',
  },
} as const satisfies Fields;

export const ENDPOINT_FIELDS = { ...WORKER_FIELDS, ...JOB_FIELDS };

/** Settings of the two scalers; an endpoint has one of them. */
export const SCALER_FIELDS = {
  seconds: {
    kind: 'integer',
    min: 1,
    max: 3_600,
    text: 'Seconds; if a job waits longer, the platform adds workers',
    default: 4,
    label: 'Queue delay, s',
  },
  perWorker: {
    kind: 'integer',
    min: 1,
    max: 100_000,
    text: 'Jobs or open requests for one worker',
    label: 'Requests per worker',
  },
} as const satisfies Fields;

/** `<port>/<protocol>`: `8000/http`, `22/tcp`. */
function isPort(text: string): boolean {
  const [, port = '0'] = /^([1-9]\d{0,4})\/(http|tcp|udp)$/.exec(text) ?? [];
  return Number(port) >= 1 && Number(port) <= 65_535;
}

/** Stands for each value in answers to a key that cannot write the variables. */
export const HIDDEN_VALUE = '***';

const IMAGE = {
  kind: 'text',
  max: 512,
  text: 'Container image',
  pattern: [
    /^[!-,.-~][!-~]*$/,
    'must be an image reference of visible ASCII characters that does not start with "-"',
  ],
  rules: [
    {
      message: 'must be an image reference without "." or ".." between its slashes',
      // A path of an engine's API contains it.
      holds: (image) => !image.split('/').some((part) => part === '.' || part === '..'),
    },
  ],
  placeholder: 'IMAGE',
  label: 'Image',
} as const satisfies Fields[string];

const DISK = {
  kind: 'integer',
  min: 1,
  max: MAX_GB,
  text: 'Size of the container disk, GB',
  placeholder: 'GB',
  label: 'Disk, GB',
} as const satisfies Fields[string];

const ARGS = {
  kind: 'text',
  min: 0,
  max: MAX_SYSTEM_TEXT,
  text: 'Command line, split like in a shell: every quote must be closed and the last character must not be a backslash; on the process engine, a pod without a handler needs it',
  rules: [
    {
      // A system call would stop there.
      message: 'must not contain a NUL character',
      holds: (args) => !args.includes('\0'),
    },
  ],
  placeholder: 'ARGS',
  help: "process engine: program and its arguments; Docker and Kubernetes: arguments of the image's entrypoint; write --args=… if they start with -",
  label: 'Arguments',
} as const satisfies Fields[string];

const PORTS = {
  kind: 'list',
  max: 64,
  maxText: 16,
  elementRules: [
    {
      message: 'must be "<port>/<protocol>" with a port from 1 to 65535 and http, tcp or udp',
      holds: isPort,
    },
  ],
  rules: [{ message: 'must not contain a port twice', holds: isDifferent }],
  text: 'Ports of the container, such as 8000/http or 22/tcp',
  help: 'port of the container, such as 8000/http or 22/tcp',
  flag: 'port',
  placeholder: 'PORT/PROTOCOL',
  label: 'Ports',
} as const satisfies Fields[string];

const ENV = {
  kind: 'variables',
  text: `Variables, by name; "${HIDDEN_VALUE}" is refused as a value`,
  help: 'environment variable of the container',
  placeholder: 'NAME=VALUE',
} as const satisfies Fields[string];

const REGISTRY = {
  kind: 'text',
  max: MAX_REFERENCE,
  text: 'ID or name of one of your registries, whose login pulls the image',
  null: 'none',
  placeholder: 'ID',
  label: 'Registry',
} as const satisfies Fields[string];

const NAME = { kind: 'name', text: 'Name, 1 to 200 characters', label: 'Name' } as const;

export const TEMPLATE_FIELDS = {
  name: NAME,
  // Required on the process engine too, although that engine ignores it.
  image: { ...IMAGE, text: 'Container image; the process engine ignores it' },
  args: { ...ARGS, default: '' },
  env: ENV,
  disk: { ...DISK, default: 20 },
  ports: { ...PORTS, default: [] },
  registry: { ...REGISTRY, default: null },
  handler: {
    kind: 'text',
    max: 4_096,
    text: "Process engine: path of the workers' handler module, an existing file on the platform's machine",
    null: 'none',
    default: null,
    // A relative path of the flag starts at the caller's folder.
    flag: null,
    label: 'Handler',
  },
} as const satisfies Fields;

const OF_TEMPLATE = 'that of the template';

export const POD_FIELDS = {
  name: NAME,
  template: {
    kind: 'text',
    max: MAX_REFERENCE,
    text: 'ID or name of a template that provides all settings that this request omits',
    null: 'none',
    optional: 'none',
    isFixed: true,
    placeholder: 'ID',
    label: 'Template',
  },
  image: { ...IMAGE, optional: `${OF_TEMPLATE}; required without one` },
  args: { ...ARGS, optional: OF_TEMPLATE },
  env: { ...ENV, optional: OF_TEMPLATE },
  disk: {
    ...DISK,
    text: 'Size of the container disk, GB; it can only grow. On Docker with disk quotas, a larger disk is new and empty',
    help: 'size of the container disk, GB',
    optional: `${OF_TEMPLATE}, else 20`,
  },
  ports: { ...PORTS, optional: OF_TEMPLATE },
  registry: { ...REGISTRY, optional: OF_TEMPLATE },
  dataCenterId: {
    kind: 'text',
    max: MAX_REFERENCE,
    text: 'ID of a data center',
    null: 'any',
    default: null,
    isFixed: true,
    flag: 'dataCenter',
    placeholder: 'ID',
  },
  cloud: {
    kind: 'choice',
    choices: ['SECURE', 'COMMUNITY'],
    text: 'Kind of cloud',
    default: 'SECURE',
    isFixed: true,
    flag: null,
  },
  globalNetworking: {
    kind: 'switch',
    text: 'Not available on the process engine',
    default: false,
    flag: null,
    isFixed: true,
  },
  locked: {
    kind: 'switch',
    text: 'The platform refuses to stop, restart or terminate the pod',
    default: false,
    flag: null,
  },
} as const satisfies Fields;

/** A user whom the operator names. */
const USER = {
  kind: 'text',
  max: 128,
  pattern: [
    /^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$/,
    'must be 1 to 128 letters, digits or ".", "_", "@", "-"',
  ],
  isFixed: true,
  flag: 'user',
  placeholder: 'USER',
  label: 'User',
} as const;

export const KEY_FIELDS = {
  name: {
    kind: 'name',
    text: 'Name of the key, 1 to 200 characters; names that start with "pod pod_" are reserved for keys of worker pods',
    help: 'name of the key, 1 to 200 characters',
    label: 'Name',
  },
  scopes: {
    kind: 'list',
    min: 1,
    max: 100,
    maxText: 200,
    text:
      'Each is `admin`, `worker`, or `jobs`, `endpoints`, `pods` or `keys` with `:read` or `:write`; ' +
      'the suffix `:<endpoint>` binds it to one endpoint, given by its ID or by the name that it has now',
    flag: 'scope',
    placeholder: 'SCOPE',
    help: 'scope, such as jobs:write, or jobs:write:echo for one endpoint',
  },
  userId: {
    ...USER,
    text: 'Owner of the key; only the operator may name another user',
    help: "act for this user; needs the operator's admin key",
    optional: 'you',
  },
  expiresAt: {
    kind: 'time',
    text: 'When the key expires, in the future; ISO 8601',
    null: 'never',
    optional: 'the expiry of the calling key',
    placeholder: 'TIME',
  },
} as const satisfies Fields;

export const NETWORK_VOLUME_FIELDS = {
  name: NAME,
  size: {
    kind: 'integer',
    min: 1,
    max: MAX_GB,
    text: 'GB; it can only grow. `capabilities.mounts.sizeLimit` of the data center says whether the size is enforced',
    help: 'size in GB; it can only grow',
    placeholder: 'GB',
    label: 'Size, GB',
  },
  dataCenterId: {
    kind: 'text',
    max: MAX_REFERENCE,
    text: 'ID of a data center; it cannot be changed',
    null: 'the default one',
    default: null,
    isFixed: true,
    flag: 'dataCenter',
    placeholder: 'ID',
    help: 'data center, from `millrace catalog data-centers`',
    label: 'Data center',
    refersTo: 'dataCenters',
  },
} as const satisfies Fields;

export const REGISTRY_FIELDS = {
  name: NAME,
  server: {
    kind: 'text',
    max: 255,
    pattern: [
      /^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[1-9]\d{0,4})?$/,
      'must be a host, or a host and a port: registry.example.com:5000',
    ],
    text: 'Host of the registry, with its port if it has one; `docker.io` for Docker Hub',
    isFixed: true,
    placeholder: 'HOST',
    label: 'Server',
  },
  username: {
    kind: 'text',
    max: 255,
    text: 'User of the registry',
    placeholder: 'USER',
    label: 'User',
  },
  secret: {
    kind: 'text',
    max: 8_192,
    text: 'Password or token; stored encrypted, and in no answer',
    isSecret: true,
    // Not an option's value, which other users of the machine can see.
    flag: null,
    label: 'Secret',
  },
} as const satisfies Fields;

export const BUDGET_FIELDS = {
  name: NAME,
  userId: {
    ...USER,
    text: 'User whose costs the budget limits. Only the operator may name another user, who sees the budget and cannot change it',
    help: "user whose costs the budget limits; needs the operator's admin key",
    optional: 'you',
  },
  endpointId: {
    kind: 'text',
    max: 128,
    text: 'ID or name of the endpoint that the budget is for',
    null: 'all pods, endpoints and network volumes of the user',
    default: null,
    isFixed: true,
    flag: 'endpoint',
    placeholder: 'ID',
    label: 'Endpoint',
    refersTo: 'endpoints',
  },
  period: {
    kind: 'choice',
    choices: ['day', 'month'],
    text: 'Period of the limit, in UTC',
    default: 'month',
    isFixed: true,
    label: 'Period',
  },
  limit: {
    kind: 'number',
    min: 0.01,
    max: 1_000_000_000,
    text: 'Maximum cost in a period, USD',
    placeholder: 'USD',
    label: 'Limit, USD',
  },
  warnAt: {
    kind: 'number',
    min: 0.01,
    max: 1,
    text: 'Share of the limit from which the state is `warning`',
    default: 0.8,
    placeholder: 'SHARE',
    label: 'Warn at, %',
    formUnit: 0.01,
  },
  webhook: {
    kind: 'text',
    max: MAX_WEBHOOK_CHARACTERS,
    rules: [
      {
        message: 'must be an http or https URL without a user name or password',
        holds: isWebhookUrl,
      },
    ],
    text:
      'URL to which the platform posts a notice when the state becomes `warning` or `used_up`, once in a period each; ' +
      'must be a public address unless the operator allows others',
    help: 'URL to which the platform posts a notice when the budget is nearly used up, and when it is',
    null: 'none',
    default: null,
    placeholder: 'URL',
  },
} as const satisfies Fields;

/** What several endpoints share: the quota of a service that their handlers call. */
export const SHARED_LIMIT_FIELDS = {
  name: { ...NAME, text: 'Name, 1 to 200 characters; handlers name the limit by it' },
  rateLimit: {
    ...RATE,
    text: 'Most jobs of all endpoints that start in any time of a length; a retry counts again',
    help: 'most jobs of all endpoints that start in any time of a length, such as 500/1m (ms, s, m, h, d)',
    label: 'Jobs per time',
    example: { max: 500, perMs: 60_000 },
  },
  concurrency: {
    kind: 'integer',
    min: 1,
    max: 1_000_000,
    text: 'Most jobs of all endpoints that workers run at once',
    null: 'any number',
    default: null,
    label: 'Jobs at once',
    example: 20,
  },
  key: {
    kind: 'choice',
    choices: ['group'],
    text: '`group`: the limit holds for the jobs of each `policy.group`; jobs without a group have no limit',
    help: 'group: the limit holds for the jobs of each group',
    null: 'for all jobs together',
    default: null,
    isFixed: true,
    label: 'For each',
  },
} as const satisfies Fields;

/** When a schedule has its ticks, and what each one does. Its input, policy and webhook are those of `run`. */
export const SCHEDULE_FIELDS = {
  name: NAME,
  endpointId: {
    kind: 'text',
    max: MAX_REFERENCE,
    text: 'ID or name of the endpoint that gets the jobs',
    isFixed: true,
    flag: 'endpoint',
    placeholder: 'ID',
    label: 'Endpoint',
    refersTo: 'endpoints',
    example: 'echo',
  },
  cron: {
    kind: 'text',
    max: 200,
    text: 'Cron expression: minute, hour, day, month, weekday, or six parts with the second first. One of `cron`, `every` and `at` must be set',
    help: 'cron expression, such as "30 2 * * *"; or use --every or --at',
    null: 'none',
    default: null,
    placeholder: 'EXPRESSION',
    label: 'Cron expression',
    example: '30 2 * * *',
  },
  timeZone: {
    kind: 'text',
    max: 64,
    text: 'IANA time zone of the cron expression',
    default: 'UTC',
    placeholder: 'ZONE',
    label: 'Time zone',
    example: 'Europe/Berlin',
  },
  every: {
    kind: 'integer',
    min: 1_000,
    max: 366 * 86_400_000,
    text: 'Time from tick to tick, ms. The ticks are the multiples of it since 1970-01-01 UTC, moved by `phase`',
    help: 'time from tick to tick, ms',
    null: 'none',
    default: null,
    placeholder: 'MS',
    label: 'Every, s',
    formUnit: 1_000,
  },
  phase: {
    kind: 'integer',
    min: 0,
    max: 366 * 86_400_000,
    text: 'Moves the ticks of `every` by this time, ms; less than `every`',
    help: 'moves the ticks of --every by this time, ms',
    default: 0,
    placeholder: 'MS',
    label: 'Phase, s',
    formUnit: 1_000,
  },
  at: {
    kind: 'time',
    text: 'Time of the only tick, in the future; ISO 8601',
    null: 'none',
    default: null,
    placeholder: 'TIME',
    label: 'Once at',
  },
  until: {
    kind: 'time',
    text: 'No tick comes after this time; ISO 8601',
    null: 'no end',
    default: null,
    placeholder: 'TIME',
    label: 'Until',
  },
  maxJobs: {
    kind: 'integer',
    min: 1,
    max: 1_000_000_000,
    text: 'The schedule ends when it has made so many jobs',
    null: 'no end',
    default: null,
    placeholder: 'N',
    label: 'Jobs at most',
  },
  catchUp: {
    kind: 'choice',
    choices: ['skip', 'one', 'all'],
    text: 'If several ticks are due at once, because the platform was away: `one` makes a job for the last, `all` for each of the last `catchUpMax`, `skip` for the last unless it is more than a minute late',
    help: 'which of the ticks that are due when the platform is back make a job: the last one if it is at most a minute late, the last one, or each up to --catch-up-max',
    default: 'one',
    label: 'Missed ticks',
  },
  catchUpMax: {
    kind: 'integer',
    min: 1,
    max: 1_000,
    text: 'Most ticks that make a job at once with `catchUp` `all`; the last ones do',
    help: 'most ticks that make a job at once with --catch-up all',
    default: 100,
    placeholder: 'N',
    label: 'Missed ticks at most',
  },
  overlap: {
    kind: 'choice',
    choices: ['allow', 'skip', 'replace'],
    text: 'If a job of the schedule has not ended at a tick: `allow` makes another one, `skip` makes none, `replace` cancels it and makes another one',
    help: 'if a job of the schedule has not ended at a tick: make another one, make none, or cancel it and make another one',
    default: 'allow',
    label: 'Overlap',
  },
  jitter: {
    kind: 'integer',
    min: 0,
    max: 3_600_000,
    text: 'The job of a tick starts later by up to this time, ms: always the same for a schedule and a tick',
    help: 'start the job of a tick later by up to this time, ms',
    default: 0,
    placeholder: 'MS',
    label: 'Jitter, s',
    formUnit: 1_000,
  },
  paused: {
    kind: 'switch',
    text: 'No ticks; those of the pause are not made up for',
    default: false,
    flag: null,
    label: 'Paused',
  },
} as const satisfies Fields;
