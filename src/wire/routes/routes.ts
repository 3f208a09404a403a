// Method, path and scope of every operation, shared by server, clients and workers. The descriptions of the
// operations (wire/operations, wire/resources) add schemas and texts; this file loads no zod.
import type { ResourceOutline, Route } from './route.ts';

type Routes = Readonly<Record<string, Route>>;

/** Resources that users own; API, client, CLI and quotas share this list. */
export const RESOURCES = {
  endpoints: {
    plural: 'endpoints',
    singular: 'endpoint',
    path: '/v1/endpoints',
    scope: 'endpoints',
    quota: 100,
  },
  templates: {
    plural: 'templates',
    singular: 'template',
    path: '/v1/templates',
    scope: 'endpoints',
    quota: 200,
  },
  keys: { plural: 'keys', singular: 'key', path: '/v1/keys', scope: 'keys', quota: 200 },
  pods: { plural: 'pods', singular: 'pod', path: '/v2/pods', scope: 'pods', quota: 100 },
  networkVolumes: {
    plural: 'networkVolumes',
    singular: 'networkVolume',
    path: '/v1/network-volumes',
    scope: 'pods',
    quota: 50,
  },
  registries: {
    plural: 'registries',
    singular: 'registry',
    path: '/v1/registries',
    scope: 'pods',
    quota: 50,
  },
  budgets: {
    plural: 'budgets',
    singular: 'budget',
    path: '/v1/budgets',
    scope: 'endpoints',
    quota: 20,
  },
  sharedLimits: {
    plural: 'sharedLimits',
    singular: 'sharedLimit',
    path: '/v1/shared-limits',
    scope: 'endpoints',
    quota: 50,
  },
  schedules: {
    plural: 'schedules',
    singular: 'schedule',
    path: '/v1/schedules',
    scope: 'jobs',
    quota: 1_000,
  },
} as const satisfies Readonly<Record<string, ResourceOutline>>;

/** A value for each resource, from its outline. */
export function mapResources<T>(
  read: (outline: ResourceOutline) => T,
): Record<keyof typeof RESOURCES, T> {
  const entries = Object.entries(RESOURCES).map(([name, each]) => [name, read(each)] as const);
  // The same names.
  return Object.fromEntries(entries) as Record<keyof typeof RESOURCES, T>;
}

/** Client operations of one endpoint's jobs. */
export const JOB_ROUTES = {
  runJob: { method: 'POST', path: '/v2/:endpoint/run', access: 'jobs:write' },
  runJobSync: { method: 'POST', path: '/v2/:endpoint/runsync', access: 'jobs:write' },
  runJobs: { method: 'POST', path: '/v2/:endpoint/jobs', access: 'jobs:write' },
  getJobStatus: { method: 'GET', path: '/v2/:endpoint/status/:job', access: 'jobs:read' },
  streamJob: { method: 'GET', path: '/v2/:endpoint/stream/:job', access: 'jobs:read' },
  cancelJob: { method: 'POST', path: '/v2/:endpoint/cancel/:job', access: 'jobs:write' },
  retryJob: { method: 'POST', path: '/v2/:endpoint/retry/:job', access: 'jobs:write' },
  purgeQueue: { method: 'POST', path: '/v2/:endpoint/purge-queue', access: 'jobs:write' },
  pauseQueue: { method: 'POST', path: '/v2/:endpoint/pause', access: 'jobs:write' },
  resumeQueue: { method: 'POST', path: '/v2/:endpoint/resume', access: 'jobs:write' },
  getPauses: { method: 'GET', path: '/v2/:endpoint/pauses', access: 'jobs:read' },
  getEndpointHealth: { method: 'GET', path: '/v2/:endpoint/health', access: 'jobs:read' },
  getInputSchema: { method: 'GET', path: '/v2/:endpoint/schema', access: 'jobs:read' },
  listJobs: { method: 'GET', path: '/v2/:endpoint/jobs', access: 'jobs:read' },
  getJob: { method: 'GET', path: '/v2/:endpoint/jobs/:job', access: 'jobs:read' },
  getJobLog: { method: 'GET', path: '/v2/:endpoint/logs/:job', access: 'jobs:read' },
  changeJobs: { method: 'POST', path: '/v2/:endpoint/jobs/change', access: 'jobs:write' },
  getFailedJob: { method: 'GET', path: '/v2/:endpoint/failed/:job', access: 'jobs:read' },
  resubmitJobs: { method: 'POST', path: '/v2/:endpoint/failed/resubmit', access: 'jobs:write' },
  deleteFailedJobs: { method: 'POST', path: '/v2/:endpoint/failed/delete', access: 'jobs:write' },
} as const satisfies Routes;

/** Graphs of jobs. Each is kept with the endpoint that it was submitted to. */
export const FLOW_ROUTES = {
  runFlow: { method: 'POST', path: '/v2/:endpoint/flows', access: 'jobs:write' },
  listFlows: { method: 'GET', path: '/v2/:endpoint/flows', access: 'jobs:read' },
  getFlow: { method: 'GET', path: '/v2/:endpoint/flows/:flow', access: 'jobs:read' },
  cancelFlow: { method: 'POST', path: '/v2/:endpoint/flows/:flow/cancel', access: 'jobs:write' },
  retryFlow: { method: 'POST', path: '/v2/:endpoint/flows/:flow/retry', access: 'jobs:write' },
} as const satisfies Routes;

/** Jobs of the lines of one file. */
export const BATCH_ROUTES = {
  runBatch: { method: 'POST', path: '/v2/:endpoint/batches', access: 'jobs:write' },
  listBatches: { method: 'GET', path: '/v2/:endpoint/batches', access: 'jobs:read' },
  getBatch: { method: 'GET', path: '/v2/:endpoint/batches/:batch', access: 'jobs:read' },
  cancelBatch: {
    method: 'POST',
    path: '/v2/:endpoint/batches/:batch/cancel',
    access: 'jobs:write',
  },
  getBatchResults: {
    method: 'GET',
    path: '/v2/:endpoint/batches/:batch/results',
    access: 'jobs:read',
  },
} as const satisfies Routes;

/** Below an endpoint's path: the paths of the OpenAI API. */
export const OPENAI_PATH = '/openai';

/**
 * Requests of the OpenAI API, which become jobs with the input `{ openai_route, openai_input }`. `path` is
 * everything behind `/v1/`, slashes included.
 */
export const OPENAI_ROUTES = {
  postOpenAi: {
    method: 'POST',
    path: `/v2/:endpoint${OPENAI_PATH}/v1/:path`,
    access: 'jobs:write',
  },
  getOpenAiModels: {
    method: 'GET',
    access: 'jobs:write',
    path: `/v2/:endpoint${OPENAI_PATH}/v1/models`,
  },
  getOpenAiModel: {
    method: 'GET',
    access: 'jobs:write',
    path: `/v2/:endpoint${OPENAI_PATH}/v1/models/:model`,
  },
} as const satisfies Routes;

const OPENAI_FILES = `/v2/:endpoint${OPENAI_PATH}/v1/files` as const;
const OPENAI_BATCHES = `/v2/:endpoint${OPENAI_PATH}/v1/batches` as const;

/** Files and batches of the OpenAI API: the platform serves them itself. */
export const OPENAI_BATCH_ROUTES = {
  uploadOpenAiFile: { method: 'POST', path: OPENAI_FILES, access: 'jobs:write' },
  listOpenAiFiles: { method: 'GET', path: OPENAI_FILES, access: 'jobs:read' },
  getOpenAiFile: { method: 'GET', path: `${OPENAI_FILES}/:file`, access: 'jobs:read' },
  deleteOpenAiFile: { method: 'DELETE', path: `${OPENAI_FILES}/:file`, access: 'jobs:write' },
  getOpenAiFileContent: {
    method: 'GET',
    path: `${OPENAI_FILES}/:file/content`,
    access: 'jobs:read',
  },
  createOpenAiBatch: { method: 'POST', path: OPENAI_BATCHES, access: 'jobs:write' },
  listOpenAiBatches: { method: 'GET', path: OPENAI_BATCHES, access: 'jobs:read' },
  getOpenAiBatch: { method: 'GET', path: `${OPENAI_BATCHES}/:batch`, access: 'jobs:read' },
  cancelOpenAiBatch: {
    method: 'POST',
    path: `${OPENAI_BATCHES}/:batch/cancel`,
    access: 'jobs:write',
  },
} as const satisfies Routes;

/** The verbs of workers; docs/protocol.md describes their messages. */
export const WORKER_ROUTES = {
  hello: { method: 'POST', path: '/v2/:endpoint/worker/hello', access: 'worker' },
  take: { method: 'POST', path: '/v2/:endpoint/worker/take', access: 'worker' },
  renew: { method: 'POST', path: '/v2/:endpoint/worker/renew', access: 'worker' },
  report: { method: 'POST', path: '/v2/:endpoint/worker/report', access: 'worker' },
  bye: { method: 'POST', path: '/v2/:endpoint/worker/bye', access: 'worker' },
} as const satisfies Routes;

export type WorkerVerb = keyof typeof WORKER_ROUTES;

/** Operations of pods besides the five verbs of a resource. */
export const POD_ROUTES = {
  actOnPod: {
    method: 'POST',
    access: 'pods:write',
    path: `${RESOURCES.pods.path}/:pod/action`,
  },
  getPodLog: { method: 'GET', path: `${RESOURCES.pods.path}/:pod/logs`, access: 'pods:read' },
} as const satisfies Routes;

export const SCALER_ROUTES = {
  listScalerDecisions: {
    method: 'GET',
    access: 'endpoints:read',
    path: `${RESOURCES.endpoints.path}/:endpoint/scaler`,
  },
} as const satisfies Routes;

/** What happens at endpoints, and what happened. */
export const ACTIVITY_ROUTES = {
  getOverview: { method: 'GET', path: '/v1/overview', access: 'key' },
  listFailedJobs: { method: 'GET', path: '/v1/failed-jobs', access: 'key' },
  getEndpointActivity: {
    method: 'GET',
    access: 'jobs:read',
    path: `${RESOURCES.endpoints.path}/:endpoint/activity`,
  },
  getEndpointSeries: {
    method: 'GET',
    access: 'jobs:read',
    path: `${RESOURCES.endpoints.path}/:endpoint/series`,
  },
} as const satisfies Routes;

/** Snapshots of what a client watches, over one connection. */
export const EVENT_ROUTES = {
  streamEvents: { method: 'GET', path: '/v1/events', access: 'key' },
} as const satisfies Routes;

/** What resources cost. */
export const BILLING_ROUTES = {
  getBilling: { method: 'GET', path: '/v1/billing', access: 'endpoints:read' },
} as const satisfies Routes;

/** Operations of schedules besides the five verbs of a resource. */
export const SCHEDULE_ROUTES = {
  triggerSchedule: {
    method: 'POST',
    access: 'jobs:write',
    path: `${RESOURCES.schedules.path}/:schedule/trigger`,
  },
  previewSchedule: {
    method: 'POST',
    access: 'jobs:read',
    path: `${RESOURCES.schedules.path}/preview`,
  },
} as const satisfies Routes;

const VERSIONS_PATH = `${RESOURCES.endpoints.path}/:endpoint/versions` as const;
const VERSION_PATH = `${VERSIONS_PATH}/:version` as const;

/** Uploaded handlers of an endpoint. */
export const VERSION_ROUTES = {
  listVersions: { method: 'GET', path: VERSIONS_PATH, access: 'endpoints:read' },
  uploadVersion: { method: 'POST', path: VERSIONS_PATH, access: 'endpoints:write' },
  getVersion: { method: 'GET', path: VERSION_PATH, access: 'endpoints:read' },
  getVersionArchive: { method: 'GET', path: `${VERSION_PATH}/archive`, access: 'endpoints:read' },
  deployVersion: { method: 'POST', path: `${VERSION_PATH}/deploy`, access: 'endpoints:write' },
  removeVersion: { method: 'DELETE', path: VERSION_PATH, access: 'endpoints:write' },
} as const satisfies Routes;

/** For the endpoint's workers. */
export const FETCH_VERSION_ROUTES = {
  fetchVersion: { method: 'GET', path: `${VERSION_PATH}/handler`, access: 'worker' },
} as const satisfies Routes;

export const CATALOG_ROUTES = {
  listGpuTypes: { method: 'GET', path: '/v2/catalog/gpus', access: 'endpoints:read' },
  listCpuFlavors: { method: 'GET', path: '/v2/catalog/cpus', access: 'endpoints:read' },
  listDataCenters: {
    method: 'GET',
    access: 'endpoints:read',
    path: '/v2/catalog/data-centers',
  },
} as const satisfies Routes;

export const KEY_ROUTES = {
  rotateKey: {
    method: 'POST',
    access: 'keys:write',
    path: `${RESOURCES.keys.path}/:key/rotate`,
  },
} as const satisfies Routes;

/** What the caller's user may use. */
export const LIMITS_ROUTES = {
  getLimits: { method: 'GET', path: '/v1/limits', access: 'key' },
} as const satisfies Routes;

/** The nodes that serve the platform; for the operator. */
export const NODE_ROUTES = {
  getNodes: { method: 'GET', path: '/v1/nodes', access: 'pods:read' },
} as const satisfies Routes;

/** Sessions of browsers: a cookie that stands for a key. */
export const SESSION_ROUTES = {
  createSession: { method: 'POST', path: '/v1/session', access: 'open' },
  getSession: { method: 'GET', path: '/v1/session', access: 'key' },
  deleteSession: { method: 'DELETE', path: '/v1/session', access: 'key' },
} as const satisfies Routes;

/** With the value `1`: a page of the console sends the request. */
export const CONSOLE_HEADER = 'Millrace-Console';

/** About the platform itself. */
export const SYSTEM_ROUTES = {
  getHealth: { method: 'GET', path: '/healthz', access: 'open' },
  getReadiness: { method: 'GET', path: '/readyz', access: 'open' },
  getMetrics: { method: 'GET', path: '/metrics', access: 'jobs:read' },
  getOpenApi: { method: 'GET', path: '/openapi.json', access: 'open' },
  callMcp: { method: 'POST', path: '/mcp', access: 'key' },
} as const satisfies Routes;

/**
 * Requests below this path and an endpoint's ID go to the workers of that load-balancing endpoint.
 */
export const LB_BASE = '/lb';

/** Below this path is the web console: its files, and the pages that they show. */
export const CONSOLE_BASE = '/console/';

/** Every method; the rest of the path is the worker's. */
export const LB_ROUTE = { path: `${LB_BASE}/:endpoint`, access: 'jobs:write' } as const;

/** Operations below this path have the paths and shapes of RunPod's API. */
export const RUNPOD_BASE = '/runpod';

/**
 * Headers of stream responses: the next position, the job's status, and whether a new attempt
 * began.
 */
export const STREAM_HEADERS = {
  next: 'Millrace-Next',
  status: 'Millrace-Status',
  reset: 'Millrace-Reset',
} as const;

/** Header of a pod's log if output before it was left out. */
export const LOG_CUT_HEADER = 'Millrace-Truncated';

/** Headers of an archive: path of the handler in it, percent-encoded, and its hash. */
export const ARCHIVE_HEADERS = { entry: 'Millrace-Entry', sha256: 'Millrace-Sha256' } as const;

/**
 * `worker` and `incarnation`: of a report request, they identify the worker. The other verbs identify it in the body.
 * `owner`: of an answer, the URL at which the node that owns the endpoint is reached directly.
 */
export const WORKER_HEADERS = {
  worker: 'Millrace-Worker',
  incarnation: 'Millrace-Incarnation',
  owner: 'Millrace-Owner',
} as const;
