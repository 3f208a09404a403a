// Parses the URLs of RunPod's workers, by hand, because these workers append "&name=value" to their
// URL templates with or without a "?".
import type { IncomingHttpHeaders } from 'node:http';
import { MAX_JOB_ID_LENGTH } from '../../wire/link/worker-link.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';

const ENDPOINTS = `${RUNPOD_BASE}/v2/`;
/** Default ping interval of the protocol, ms. */
const DEFAULT_PING_MS = 10_000;
const MAX_PING_MS = 600_000;
/** Limit of `take`. */
const MAX_BATCH = 1_000;
/** A URL within the 16 KB limit of headers holds fewer real IDs, of 36 characters each. */
const MAX_NAMED_JOBS = 500;

/** Form of this platform's job IDs: UUID version 7. */
const JOB_ID_FORM = /^(sync-)?[0-9a-f]{8}-[0-9a-f]{4}-7/;
/** The client whose headers and `job_in_progress` have the meaning that is used here. */
const KNOWN_CLIENT = /^RunPod-Python-SDK\//;
const KNOWN_CLIENT_ATTEMPTS = 3;

export interface WorkerCall {
  /** The worker's ID in the queue. */
  workerId: string;
  /** The job's name as the platform gave it; undefined if the path has none. */
  jobName: string | undefined;
  params: URLSearchParams;
}

/** `url` is the request's URL, `verb` the segment before the worker's ID. */
export function readWorkerCall(url: string, verb: string): WorkerCall {
  const marker = `/${verb}/`;
  // An endpoint may have the name of a verb.
  const endpointAt = url.indexOf(ENDPOINTS) + ENDPOINTS.length;
  const rest = url.slice(url.indexOf(marker, endpointAt) + marker.length);
  const end = rest.search(/[?&]/);
  const path = end < 0 ? rest : rest.slice(0, end);
  const query = end < 0 ? '' : rest.slice(end + 1).replaceAll('?', '&');
  const [worker = '', job] = path.split('/').map(decode);
  return {
    workerId: toWorkerId(worker),
    jobName: job || undefined,
    params: new URLSearchParams(query),
  };
}

/** Number of jobs that a take requests; default one. */
export function readBatchSize({ params }: WorkerCall): number {
  const size = Number(params.get('batch_size') ?? '1');
  return Number.isInteger(size) && size >= 1 ? Math.min(size, MAX_BATCH) : 1;
}

/** Interval from this platform's URL template, ms. */
export function readPingMs({ params }: WorkerCall): number {
  const every = Number(params.get('every') ?? '');
  return Number.isInteger(every) && every >= 1 ? Math.min(every, MAX_PING_MS) : DEFAULT_PING_MS;
}

/** The jobs that a ping names, each once. Each costs a lookup, hence the limit. */
export function readNamedJobs({ params }: WorkerCall): string[] {
  const named = params.getAll('job_id').flatMap((ids) => ids.split(','));
  return [...new Set(named.filter(Boolean))].slice(0, MAX_NAMED_JOBS);
}

/** Facts about a worker's process that its take reveals. */
export interface TakeSigns {
  /** It runs no job. */
  isIdle: boolean;
  /** It runs no job and has posted nothing yet: it has just started, or has never had a job. */
  isNew: boolean;
}

/**
 * runpod-python sets `X-Request-ID` with each chunk and result that it posts, and from then on also
 * sends it with its polls. Proxies use the header for IDs of their own, so only the form of a job
 * ID counts.
 */
export function readTakeSigns({ params }: WorkerCall, headers: IncomingHttpHeaders): TakeSigns {
  const isIdle = isRunpodPython(headers) && params.get('job_in_progress') === '0';
  return { isIdle, isNew: isIdle && !JOB_ID_FORM.test(String(headers['x-request-id'] ?? '')) };
}

export function isRunpodPython(headers: IncomingHttpHeaders): boolean {
  return KNOWN_CLIENT.test(headers['user-agent'] ?? '');
}

/** How often a worker sends a chunk that gets 5xx answers. Unlimited for clients other than runpod-python. */
export function readMaxAttempts(headers: IncomingHttpHeaders): number {
  return isRunpodPython(headers) ? KNOWN_CLIENT_ATTEMPTS : Number.POSITIVE_INFINITY;
}

/** The first attempt has the client's job ID, because handlers use it in file names and logs. */
export function formatAttemptId({ attempt, jobId }: { jobId: string; attempt: number }): string {
  return attempt === 1 ? jobId : `${jobId}-a${attempt}`;
}

/** Undefined for a name that this platform cannot have given. */
export function readAttemptName(name: string): { jobId: string; attempt: number } | undefined {
  const parts = /^(.+)-a(\d{1,9})$/.exec(name);
  const jobId = parts?.[1] ?? name;
  if (jobId === '' || jobId.length > MAX_JOB_ID_LENGTH) return undefined;
  return { jobId, attempt: Number(parts?.[2] ?? '1') };
}

/** The placeholder of a URL template that was not filled in: any number of workers use this ID. */
export function isSharedId(workerId: string): boolean {
  return workerId.includes('RUNPOD_POD_ID');
}

function toWorkerId(name: string): string {
  const plain = name.replaceAll(/[^A-Za-z0-9._-]/g, '-').replace(/^[^A-Za-z0-9]+/, '');
  return plain.slice(0, 128) || 'unnamed';
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
