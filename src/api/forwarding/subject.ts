// Reads from a request's route what it is about: an endpoint, the control plane, or this node itself; whether it may
// be sent again; and what a stopping node asks in its place.
import type { FastifyRequest } from 'fastify';
import { LIMITS } from '../../wire/job/job.ts';
import {
  ACTIVITY_ROUTES,
  BATCH_ROUTES,
  FLOW_ROUTES,
  JOB_ROUTES,
  LB_ROUTE,
  OPENAI_BATCH_ROUTES,
  RESOURCES,
  RUNPOD_BASE,
  SYSTEM_ROUTES,
} from '../../wire/routes/routes.ts';
import { readTarget } from '../http/requests.ts';

/** `local`: any node answers it about itself. */
export type Subject =
  | { kind: 'local' }
  | { kind: 'control' }
  | { kind: 'endpoint'; endpointId: string };

const LOCAL: Subject = { kind: 'local' };
const CONTROL: Subject = { kind: 'control' };

/**
 * Endpoints themselves belong to the control plane, although their paths have an ID. So do requests for load-balanced
 * workers: the leader knows the addresses of all pods.
 */
export function findSubject({ params, routeOptions }: FastifyRequest): Subject {
  const { config, url = '' } = routeOptions;
  if (config.access === undefined || config.access === 'open' || config.access === 'key') {
    return LOCAL;
  }
  if (url === SYSTEM_ROUTES.getMetrics.path) return LOCAL;
  const isOfQueue = url === ACTIVITY_ROUTES.getEndpointSeries.path;
  const isManaged = url.startsWith(`${RUNPOD_BASE}/v2/serverless`);
  if (
    (url.startsWith(RESOURCES.endpoints.path) && !isOfQueue) ||
    isManaged ||
    url === LB_ROUTE.path
  )
    return CONTROL;
  if (typeof params !== 'object' || params === null || !('endpoint' in params)) return CONTROL;
  return { kind: 'endpoint', endpointId: String(params.endpoint) };
}

/** The kind of the jobs that the request submits, if it submits any. */
export function findSubmission({
  method,
  routeOptions,
}: FastifyRequest): 'run' | 'runsync' | undefined {
  const path = stripBase(routeOptions.url ?? '');
  if (path === JOB_ROUTES.runJob.path) return 'run';
  if (path === JOB_ROUTES.runJobs.path || path === FLOW_ROUTES.runFlow.path)
    return method === 'POST' ? 'run' : undefined;
  return path === JOB_ROUTES.runJobSync.path ? 'runsync' : undefined;
}

/** By HTTP: a second one of the same request changes nothing more. */
const IDEMPOTENT_METHODS = new Set(['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE']);
/** The same of POST: what they change is named, or they only read (RunPod's clients). */
const IDEMPOTENT_PATHS = new Set<string>([
  JOB_ROUTES.cancelJob.path,
  JOB_ROUTES.retryJob.path,
  JOB_ROUTES.purgeQueue.path,
  JOB_ROUTES.pauseQueue.path,
  JOB_ROUTES.resumeQueue.path,
  FLOW_ROUTES.cancelFlow.path,
  BATCH_ROUTES.cancelBatch.path,
  OPENAI_BATCH_ROUTES.cancelOpenAiBatch.path,
  JOB_ROUTES.getJobStatus.path,
  '/v2/:endpoint/status-sync/:job',
]);

/**
 * Whether the request may be sent again although a node may have acted on it. Workers' verbs name what they
 * do; a poll of RunPod's workers does not. A creation without a name of its own does not either.
 */
export function isRepeatable(request: FastifyRequest): boolean {
  const { method, routeOptions } = request;
  const { config, url = '' } = routeOptions;
  if (config.access === 'worker') return !url.startsWith(RUNPOD_BASE);
  if (url === LB_ROUTE.path) return false;
  const path = stripBase(url);
  const isIdempotent = IDEMPOTENT_METHODS.has(method) || IDEMPOTENT_PATHS.has(path);
  return isIdempotent || findSubmission(request) !== undefined;
}

function stripBase(url: string): string {
  return url.startsWith(RUNPOD_BASE) ? url.slice(RUNPOD_BASE.length) : url;
}

export interface FinalLook {
  method: string;
  /** Path and query. */
  path: string;
}

/** RunPod's path for waiting with GET or POST, which this platform serves below RunPod's base. */
const STATUS_SYNC = /\/status-sync\/:job$/;

/**
 * What a stopping node asks in place of a request that waits at another node: the same, without the wait. Its own
 * queue answers waiting requests in the same way when it stops. Undefined for requests that do not wait for long, or
 * whose wait has no other form.
 */
export function describeFinalLook(
  request: FastifyRequest,
  jobId: string | undefined,
): FinalLook | undefined {
  const { method, routeOptions } = request;
  const target = readTarget(request);
  const [path = ''] = target.split('?', 1);
  if (jobId !== undefined && findSubmission(request) === 'runsync') {
    return { method: 'GET', path: path.replace(/\/runsync$/, `/status/${jobId}`) };
  }
  const { url = '' } = routeOptions;
  const query = new URLSearchParams(target.slice(path.length));
  const waits =
    STATUS_SYNC.test(url) ||
    url.endsWith(JOB_ROUTES.streamJob.path) ||
    (url === JOB_ROUTES.getJobStatus.path && query.has('wait'));
  if (!waits || method !== 'GET') return undefined;
  query.set('wait', String(LIMITS.waitMs.min));
  return { method, path: `${path}?${query}` };
}
