// The paths of the API, shared by server and clients.

/**
 * Client operations and worker verbs of one endpoint; `endpoint` and `job` are inserted unchanged.
 */
export const routes = {
  run: (endpoint: string) => `/v2/${endpoint}/run`,
  runsync: (endpoint: string) => `/v2/${endpoint}/runsync`,
  status: (endpoint: string, job: string) => `/v2/${endpoint}/status/${job}`,
  stream: (endpoint: string, job: string) => `/v2/${endpoint}/stream/${job}`,
  cancel: (endpoint: string, job: string) => `/v2/${endpoint}/cancel/${job}`,
  retry: (endpoint: string, job: string) => `/v2/${endpoint}/retry/${job}`,
  purgeQueue: (endpoint: string) => `/v2/${endpoint}/purge-queue`,
  health: (endpoint: string) => `/v2/${endpoint}/health`,
  jobs: (endpoint: string) => `/v2/${endpoint}/jobs`,
  logs: (endpoint: string, job: string) => `/v2/${endpoint}/logs/${job}`,
  worker: (endpoint: string, verb: WorkerVerb) => `/v2/${endpoint}/worker/${verb}`,
} as const;

/** Resources of the platform; `id` is inserted unchanged. */
export const resourceRoutes = {
  pods: '/v2/pods',
  pod: (id: string) => `/v2/pods/${id}`,
  podAction: (id: string) => `/v2/pods/${id}/action`,
  podLogs: (id: string) => `/v2/pods/${id}/logs`,
  gpus: '/v2/catalog/gpus',
  cpus: '/v2/catalog/cpus',
  endpoints: '/v1/endpoints',
  endpoint: (id: string) => `/v1/endpoints/${id}`,
  scaler: (id: string) => `/v1/endpoints/${id}/scaler`,
  templates: '/v1/templates',
  template: (id: string) => `/v1/templates/${id}`,
  keys: '/v1/keys',
  key: (id: string) => `/v1/keys/${id}`,
  keyRotation: (id: string) => `/v1/keys/${id}/rotate`,
} as const;

/**
 * Requests below this path and an endpoint's ID go to the workers of that load-balancing endpoint.
 */
export const LB_BASE = '/lb';

export type WorkerVerb = 'hello' | 'take' | 'renew' | 'report' | 'bye';

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

/**
 * Headers of a report request that identify the worker. The other verbs identify it in the body.
 */
export const WORKER_HEADERS = {
  worker: 'Millrace-Worker',
  incarnation: 'Millrace-Incarnation',
} as const;
