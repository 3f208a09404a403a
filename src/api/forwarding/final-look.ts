// What a stopping node asks in place of a request that waits at another node: the same, without the wait. Its own
// queue answers waiting requests in the same way when it stops.
import type { FastifyRequest } from 'fastify';
import { LIMITS } from '../../wire/job/job.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { readTarget } from '../http/record-names.ts';
import { findSubmission } from './subject.ts';

export interface FinalLook {
  method: string;
  /** Path and query. */
  path: string;
}

/** RunPod's path for waiting with GET or POST, which this platform serves below RunPod's base. */
const STATUS_SYNC = /\/status-sync\/:job$/;

/** Undefined for requests that do not wait for long, or whose wait has no other form. */
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
