// The public API for programs: `millrace/client`. A client submits and reads the jobs of one endpoint;
// a platform object manages all other resources. client/ sends and repeats the requests.
import { ApiCaller, type ApiCallerOptions, callOf } from './client/api-caller.ts';
import { readStream, type StreamChunk, type StreamOptions } from './client/chunk-stream.ts';
import { followLog, type LogOptions, type LogPage, readLogPage } from './client/job-log.ts';
import { chooseTrace } from './client/trace.ts';
import type { JobPolicy, JobRecord, JobStatus, JobSummary } from './wire/job.ts';
import type { EndpointHealth } from './wire/resources/endpoint.ts';
import { fillPath } from './wire/route.ts';
import { JOB_ROUTES } from './wire/routes.ts';

export { ApiError, UnreachableError } from './client/api-caller.ts';
export type { StreamChunk, StreamOptions } from './client/chunk-stream.ts';
export type { Endpoints } from './client/endpoints.ts';
export type { LogOptions, LogPage } from './client/job-log.ts';
export type { Keys, RotationOptions } from './client/keys.ts';
export { createPlatform, type Platform } from './client/platform.ts';
export type { PodLogOptions, Pods } from './client/pods.ts';
export type {
  EndpointChange,
  NewEndpoint,
  NewKey,
  NewPod,
  NewTemplate,
  PodChange,
  TemplateChange,
} from './client/requests.ts';
export type { ListOptions, Page, PageOptions } from './client/resource-pages.ts';
export type {
  ChangeOf,
  CreationOf,
  Listed,
  RecordOf,
  ResourceName,
  ResourceOptions,
  Resources,
  ResourcesOf,
} from './client/resources.ts';
export {
  type ReceivedWebhook,
  verifyWebhook,
  WEBHOOK_HEADERS,
  WebhookRefusedError,
} from './client/webhook.ts';
export type { Chunk, Metrics } from './wire/chunk/chunk.ts';
export { reassemble } from './wire/chunk/chunk-reassembly.ts';
export type {
  ErrorCode,
  FailedAttempt,
  JobError,
  JobPolicy,
  JobRecord,
  JobStatus,
  JobSummary,
  StuckPlace,
} from './wire/job.ts';
export type { Json } from './wire/json.ts';
export type { Problem, ProblemCode } from './wire/problem.ts';
export type { CpuFlavor, GpuType } from './wire/resources/catalog.ts';
export type { DecisionRecord } from './wire/resources/decision.ts';
export type { EndpointHealth, EndpointRecord } from './wire/resources/endpoint.ts';
export type { IssuedKeyRecord, KeyRecord } from './wire/resources/key.ts';
export type { PodAction, PodRecord, PodStatus } from './wire/resources/pod.ts';
export type { TemplateRecord } from './wire/resources/template.ts';

export interface ClientOptions extends ApiCallerOptions {
  /** Id of the endpoint: `echo` in `/v2/echo/run`. */
  endpoint: string;
}

export interface SubmitOptions {
  policy?: JobPolicy;
  /** http or https URL to which the record is posted when the job has ended; see `verifyWebhook`. */
  webhook?: string;
  /** The same key with the same body gives the same job, while that is retained. */
  idempotencyKey?: string;
  /**
   * W3C trace context that the job belongs to; one that is not valid is not sent. Default: that of
   * the active span, if the program has registered an OpenTelemetry SDK.
   */
  traceparent?: string;
  /** Goes with `traceparent`, at most 512 characters. */
  tracestate?: string;
  signal?: AbortSignal;
}

export interface CallOptions {
  signal?: AbortSignal;
}

export interface JobReference {
  id: string;
  status: JobStatus;
}

export interface JobList {
  /** Newest first. */
  jobs: JobSummary[];
  /** For the next page; missing on the last one. */
  cursor?: string;
}

/**
 * Every call rejects with ApiError when the service refuses it, and with UnreachableError when no
 * answer came. Reading calls are repeated over short outages; `run` and `runsync` only with an
 * `idempotencyKey`, because without one a repeated call could start a second job.
 */
export interface Client {
  /** Queues a job; its result is fetched with `status` or `stream`. `input` is at most 10 MB of JSON. */
  run(input: object, options?: SubmitOptions): Promise<JobReference>;
  /**
   * Queues a job and waits for its end, at most `waitMs` (1,000 to 300,000, default 90,000); then the
   * record says how far it is, and the job goes on. `input` is at most 20 MB of JSON.
   */
  runsync(input: object, options?: SubmitOptions & { waitMs?: number }): Promise<JobRecord>;
  /** `ttlMs` replaces the time after which the job is removed, from now. */
  status(jobId: string, options?: CallOptions & { ttlMs?: number }): Promise<JobRecord>;
  /**
   * The job's chunks from the start, or after a position, until it has ended. It goes on where it
   * was after an outage, so that no chunk is lost or doubled.
   */
  stream(jobId: string, options?: StreamOptions): AsyncGenerator<StreamChunk, void, void>;
  /** @throws ApiError 409 if it has ended otherwise */
  cancel(jobId: string, options?: CallOptions): Promise<JobReference>;
  /** Queues a FAILED or TIMED_OUT job again. @throws ApiError 409 for any other */
  retry(jobId: string, options?: CallOptions): Promise<JobReference>;
  /** Cancels every job that waits in the queue. */
  purgeQueue(options?: CallOptions): Promise<{ removed: number; status: string }>;
  health(options?: CallOptions): Promise<EndpointHealth>;
  /** One page of the job list; `limit` is at most what the service allows. */
  jobs(
    options?: CallOptions & { status?: JobStatus; cursor?: string; limit?: number },
  ): Promise<JobList>;
  /** What the handler logged: NDJSON. */
  log(jobId: string, options?: LogOptions): Promise<LogPage>;
  /** The pages of the log as they come, until the job has ended. */
  followLog(jobId: string, options?: LogOptions): AsyncGenerator<LogPage, void, void>;
}

/** @throws TypeError if the URL is none, or neither http nor https. */
export function createClient(options: ClientOptions): Client {
  const caller = new ApiCaller(options);
  const { endpoint } = options;
  const ofEndpoint = { endpoint };
  const ofJob = (job: string) => ({ endpoint, job });
  return {
    run: async (input, { signal, traceparent, tracestate, ...rest } = {}) =>
      caller.json<JobReference>({
        ...callOf(JOB_ROUTES.runJob, ofEndpoint),
        headers: await chooseTrace({ traceparent, tracestate }),
        body: { input, ...rest },
        repeatable: rest.idempotencyKey !== undefined,
        signal,
      }),
    runsync: async (input, { signal, waitMs, traceparent, tracestate, ...rest } = {}) =>
      caller.json<JobRecord>({
        ...callOf(JOB_ROUTES.runJobSync, ofEndpoint),
        headers: await chooseTrace({ traceparent, tracestate }),
        query: { wait: waitMs },
        body: { input, ...rest },
        repeatable: rest.idempotencyKey !== undefined,
        signal,
      }),
    status: (jobId, { signal, ttlMs } = {}) =>
      caller.json<JobRecord>({
        ...callOf(JOB_ROUTES.getJobStatus, ofJob(jobId)),
        query: { ttl: ttlMs },
        signal,
      }),
    stream: (jobId, streamOptions = {}) =>
      readStream(caller, fillPath(JOB_ROUTES.streamJob, ofJob(jobId)), streamOptions),
    cancel: (jobId, { signal } = {}) =>
      caller.json<JobReference>({
        ...callOf(JOB_ROUTES.cancelJob, ofJob(jobId)),
        signal,
      }),
    retry: (jobId, { signal } = {}) =>
      caller.json<JobReference>({
        ...callOf(JOB_ROUTES.retryJob, ofJob(jobId)),
        repeatable: false,
        signal,
      }),
    purgeQueue: ({ signal } = {}) =>
      caller.json<{ removed: number; status: string }>({
        ...callOf(JOB_ROUTES.purgeQueue, ofEndpoint),
        repeatable: false,
        signal,
      }),
    health: ({ signal } = {}) =>
      caller.json<EndpointHealth>({ ...callOf(JOB_ROUTES.getEndpointHealth, ofEndpoint), signal }),
    jobs: ({ signal, ...query } = {}) =>
      caller.json<JobList>({ ...callOf(JOB_ROUTES.listJobs, ofEndpoint), query, signal }),
    log: (jobId, logOptions = {}) =>
      readLogPage(caller, fillPath(JOB_ROUTES.getJobLog, ofJob(jobId)), logOptions),
    followLog: (jobId, logOptions = {}) =>
      followLog(caller, fillPath(JOB_ROUTES.getJobLog, ofJob(jobId)), logOptions),
  };
}
