// The public API for programs: `millrace/client`. A client submits and reads the jobs of one endpoint;
// a platform object manages all other resources. client/ sends and repeats the requests.
import { type ApiCall, ApiCaller, type ApiCallerOptions, callOf } from './client/api-caller.ts';
import { type BatchesClient, connectBatches } from './client/jobs/batches.ts';
import { connectFlows, type FlowsClient } from './client/jobs/flows.ts';
import {
  followLog,
  type LogOptions,
  type LogPage,
  readLogPage,
  readStream,
  type StreamChunk,
  type StreamOptions,
  waitForEnd,
} from './client/jobs/job-reads.ts';
import {
  type Inputs,
  type NewJob,
  type RunAllOptions,
  type RunManyOptions,
  type RunResult,
  runAll,
  runMany,
  type SubmitResult,
} from './client/jobs/run-many.ts';
import {
  chooseTrace,
  composeSubmission,
  type JobReference,
  Submissions,
  type SubmitOptions,
} from './client/jobs/submissions.ts';
import type { ChunkOf, InputOf, OutputOf } from './wire/job/handler-types.ts';
import type { ErrorCode, JobChange, JobStatus } from './wire/job/job.ts';
import type {
  ChangedJobs,
  FailedJob,
  JobDetails,
  JobRecord,
  JobSummary,
  ResubmittedJob,
  ResubmittedJobs,
} from './wire/job/job-records.ts';
import { requireJsonInput } from './wire/job/json-input.ts';
import type { Json } from './wire/json.ts';
import type { EndpointHealth, InputSchemaRecord } from './wire/resources/endpoint.ts';
import type { Pause, PauseList, PauseRequest } from './wire/resources/pause.ts';
import { fillPath } from './wire/routes/route.ts';
import { JOB_ROUTES } from './wire/routes/routes.ts';

export { ApiError, UnreachableError } from './client/api-caller.ts';
export type { EventsOptions, TopicEvent } from './client/events.ts';
export type { BatchesClient, BatchListOptions, BatchSubmitOptions } from './client/jobs/batches.ts';
export type { FlowListOptions, FlowSelection, FlowsClient } from './client/jobs/flows.ts';
export type { LogOptions, LogPage, StreamChunk, StreamOptions } from './client/jobs/job-reads.ts';
export type {
  Inputs,
  NewJob,
  RunAllOptions,
  RunAllProgress,
  RunManyOptions,
  RunManyProgress,
  RunResult,
  SubmitResult,
} from './client/jobs/run-many.ts';
export type { JobReference, SubmitOptions } from './client/jobs/submissions.ts';
export type {
  BudgetsClient,
  DeployOptions,
  EndpointsClient,
  KeysClient,
  NewVersion,
  PodLogOptions,
  PodsClient,
  RotationOptions,
  SchedulesClient,
  VersionsClient,
} from './client/platform-client.ts';
export { createPlatform, type FailedJobsOptions, type Platform } from './client/platform-client.ts';
export type {
  ChangeOf,
  CreationOf,
  EndpointChange,
  Listed,
  ListOptions,
  NewEndpoint,
  NewKey,
  NewPod,
  NewTemplate,
  Page,
  PageOptions,
  PodChange,
  RecordOf,
  ResourceName,
  ResourceOptions,
  Resources,
  ResourcesOf,
  TemplateChange,
} from './client/resource-calls.ts';
export {
  type ReceivedWebhook,
  verifyWebhook,
  WEBHOOK_HEADERS,
  WebhookRefusedError,
} from './client/webhook-verification.ts';
export type { Chunk, Metrics } from './wire/chunk/chunk.ts';
export { reassemble } from './wire/chunk/chunk-pieces.ts';
export type { KubernetesLimits, PodKubernetes } from './wire/engine/kubernetes.ts';
export type { AttemptUsage, GpuUsage, StuckPlace } from './wire/job/attempt.ts';
export type { BatchList, BatchRecord } from './wire/job/batch-records.ts';
export type {
  FlowJob,
  FlowList,
  FlowRecord,
  FlowReference,
  FlowSummary,
} from './wire/job/flow-records.ts';
export type { ChunkOf, InputOf, OutputOf } from './wire/job/handler-types.ts';
export type {
  ErrorCode,
  FlowEdge,
  FlowJobRequest,
  FlowRequest,
  JobPolicy,
  JobStatus,
  ParentPolicy,
  ParentReference,
} from './wire/job/job.ts';
export { type JobChange, JobFailedError, WAIT_CODES, type WaitCode } from './wire/job/job.ts';
export type {
  FailedAttempt,
  FailedJob,
  JobDetails,
  JobError,
  JobRecord,
  JobSummary,
  ResubmittedJob,
  TimelineEntry,
  WaitReason,
} from './wire/job/job-records.ts';
export type { RetryPolicy } from './wire/job/retry-policy.ts';
export type { Json } from './wire/json.ts';
export type { Problem, ProblemCode } from './wire/problem.ts';
export type { FailedJobList } from './wire/resources/activity.ts';
export type { BillingPage, BillingRecord } from './wire/resources/billing.ts';
export type { BudgetRecord } from './wire/resources/budget.ts';
export type {
  CpuFlavor,
  DataCenter,
  EngineCapabilitiesRecord,
  GpuType,
} from './wire/resources/catalog.ts';
export type {
  EndpointHealth,
  EndpointRecord,
  InputSchemaRecord,
} from './wire/resources/endpoint.ts';
export type { IssuedKeyRecord, KeyRecord } from './wire/resources/key.ts';
export type { LimitsRecord } from './wire/resources/limits.ts';
export type { NetworkVolumeRecord } from './wire/resources/network-volume.ts';
export type { NodeList, NodeRecord } from './wire/resources/nodes.ts';
export type { Pause } from './wire/resources/pause.ts';
export type { PodAction, PodRecord, PodStatus } from './wire/resources/pod.ts';
export type { RegistryRecord } from './wire/resources/registry.ts';
export type { DecisionRecord } from './wire/resources/scaling.ts';
export type { ScheduleRecord } from './wire/resources/schedule.ts';
export type { SharedLimitRecord } from './wire/resources/shared-limit.ts';
export type { TemplateRecord } from './wire/resources/template.ts';
export type { VersionRecord } from './wire/resources/version.ts';
export { composeTopic, type TopicKind } from './wire/routes/event-topics.ts';

export interface ClientOptions extends ApiCallerOptions {
  /** ID of the endpoint: `echo` in `/v2/echo/run`. */
  endpoint: string;
  /**
   * While two requests with submissions have no answer, further calls of `run` wait and share the next request. If
   * false, each call sends a request of its own. Default true.
   */
  sharedRequests?: boolean;
}

export interface CallOptions {
  signal?: AbortSignal;
}

/** Filters of the list of jobs. With another one than `status`, a page may be short and yet have a `cursor`. */
/** What a job must have; a member that is left out does not matter. */
export interface JobFilters {
  status?: JobStatus;
  /** Submitted at or after, and at or before this time, Unix ms. */
  since?: number;
  until?: number;
  /** Of the running or the last attempt. */
  workerId?: string;
  /** Of a failed attempt. */
  errorCode?: ErrorCode;
  /** A part of the job's ID. */
  id?: string;
  /** All of them. */
  tags?: readonly string[];
}

export interface JobListOptions extends JobFilters {
  cursor?: string;
  limit?: number;
}

export interface ChangeOptions {
  /** Only count the jobs. */
  dryRun?: boolean;
  /** Only jobs that were submitted by then and, unless they are cancelled, have ended by then: `asOf` of a count. Default: now. */
  asOf?: number;
}

export interface JobsChanged {
  matched: number;
  /** The others could not be changed, or others have changed them meanwhile. */
  changed: number;
  /** Unix ms. */
  asOf: number;
}

export interface JobList {
  /** Newest first. */
  jobs: JobSummary[];
  /** Cursor of the next page; absent on the last page. */
  cursor?: string;
}

/**
 * Each call rejects with ApiError if the platform refuses it, and with UnreachableError if no
 * answer arrives. Reading calls are retried over short outages; `run`, `runMany` and `runsync` only with an
 * `idempotencyKey`, because without one a retry could start a second job.
 */
export interface Client<Handler = unknown> {
  /** Queues a job; fetch its result with `status` or `stream`. `input` is at most 10 MB of JSON. */
  run(input: InputOf<Handler>, options?: SubmitOptions): Promise<JobReference>;
  /**
   * Queues any number of jobs, at most 100 with each request, and returns a result for each, in the order of the jobs.
   * Does not wait for their ends, as `runAll` does. A job that is refused rejects only its own result. Give each job an
   * `idempotencyKey`: without one, a lost request is not repeated. @throws the signal's reason, and what `jobs` or `onProgress` throw
   */
  runMany(
    jobs: Inputs<NewJob<InputOf<Handler>>>,
    options?: RunManyOptions,
  ): Promise<SubmitResult[]>;
  /**
   * Queues a job and waits for its end, at most `waitMs` (1,000 to 300,000, default 90,000). After
   * that, it returns the current record and the job continues. `input` is at most 20 MB of JSON.
   */
  runsync(
    input: InputOf<Handler>,
    options?: SubmitOptions & { waitMs?: number; cancelOnDisconnect?: boolean },
  ): Promise<JobRecord<OutputOf<Handler>>>;
  /** `ttlMs` sets the time from now after which the job is removed. */
  status(
    jobId: string,
    options?: CallOptions & { ttlMs?: number },
  ): Promise<JobRecord<OutputOf<Handler>>>;
  /** Times, settings and input of the job. */
  details(jobId: string, options?: CallOptions): Promise<JobDetails>;
  /** Waits until the job has ended, with any status, however long that takes; `signal` can end the wait. */
  wait(jobId: string, options?: CallOptions): Promise<JobRecord<OutputOf<Handler>>>;
  /**
   * Runs one job for each input, at most `concurrency` at a time, and returns one result for each, in the order of
   * the inputs. A job that fails rejects only its own result. Reads an iterator no further than it has jobs to start.
   * @throws RangeError, the signal's reason, and what `inputs` or `onProgress` throw
   */
  runAll(
    inputs: Inputs<InputOf<Handler>>,
    options?: RunAllOptions<OutputOf<Handler>>,
  ): Promise<RunResult<OutputOf<Handler>>[]>;
  /**
   * Reads the job's chunks from the start, or after a position, until the job has ended. After an
   * outage it continues where it was; it loses and repeats no chunk.
   */
  stream(
    jobId: string,
    options?: StreamOptions,
  ): AsyncGenerator<StreamChunk<ChunkOf<Handler, Json>>, void, void>;
  /** @throws ApiError 409 if the job has ended in another state */
  cancel(jobId: string, options?: CallOptions): Promise<JobReference>;
  /** Queues a FAILED or TIMED_OUT job again. @throws ApiError 409 for any other job */
  retry(jobId: string, options?: CallOptions): Promise<JobReference>;
  /** Cancels all jobs that wait in the queue. */
  purgeQueue(options?: CallOptions): Promise<{ removed: number; status: string }>;
  /**
   * Holds back the jobs of the endpoint, or of one group, until `resume` or `until` (Unix ms). Running jobs go on. After the
   * answer no worker gets another one of these jobs.
   */
  pause(options?: CallOptions & PauseRequest): Promise<Pause>;
  /** Ends the pause of the endpoint, or that of one group; has no effect without a pause. */
  resume(options?: CallOptions & { group?: string }): Promise<void>;
  /** The pauses that hold now, that of the endpoint first. */
  pauses(options?: CallOptions): Promise<Pause[]>;
  health(options?: CallOptions): Promise<EndpointHealth>;
  /** What the endpoint's handler accepts, as JSON Schema; its `schema` is null if the platform knows none. */
  inputSchema(options?: CallOptions): Promise<InputSchemaRecord>;
  /** Returns one page of the job list; `limit` is at most what the platform allows. */
  jobs(options?: CallOptions & JobListOptions): Promise<JobList>;
  /**
   * Cancels, retries or deletes all jobs that match, in requests of 1,000 jobs. `cancel` is for queued and running jobs, `retry`
   * for FAILED and TIMED_OUT ones, `delete` for all that have ended. With `dryRun` it counts them. No job is changed twice.
   */
  changeJobs(
    change: JobChange,
    filter: JobFilters,
    options?: CallOptions & ChangeOptions,
  ): Promise<JobsChanged>;
  /** Graphs of jobs that one request submits. */
  readonly flows: FlowsClient;
  /** Lines of a file as jobs. */
  readonly batches: BatchesClient;
  /** Returns what the handler logged, as NDJSON. */
  log(jobId: string, options?: LogOptions): Promise<LogPage>;
  /** A FAILED or TIMED_OUT job with error, timeline, input and log, also after its retention. @throws ApiError */
  failedJob(jobId: string, options?: CallOptions): Promise<FailedJob>;
  /** Submits 1 to 100 failed jobs again, each once, as new jobs. @throws ApiError */
  resubmit(ids: readonly string[], options?: CallOptions): Promise<ResubmittedJob[]>;
  /** Deletes 1 to 100 failed jobs. @returns their number @throws ApiError */
  deleteFailed(ids: readonly string[], options?: CallOptions): Promise<number>;
  /** Yields pages of the log until the job has ended. */
  followLog(jobId: string, options?: LogOptions): AsyncGenerator<LogPage, void, void>;
}

interface JobsChange extends CallOptions, ChangeOptions {
  change: JobChange;
  filter: JobFilters;
}

/** A repeated request changes no job twice, because all name the same time: that of the platform. */
async function changeJobs(
  caller: ApiCaller,
  call: ApiCall,
  { asOf: given, signal, ...body }: JobsChange,
): Promise<JobsChanged> {
  const send = (more: object) =>
    caller.json<ChangedJobs>({ ...call, body: { ...body, ...more }, signal });
  const asOf = given ?? (await send({ dryRun: true })).asOf;
  const total = { matched: 0, changed: 0, asOf };
  let cursor: string | undefined;
  do {
    const page = await send({ asOf, ...(cursor !== undefined && { cursor }) });
    total.matched += page.matched;
    total.changed += page.changed;
    cursor = page.cursor;
  } while (cursor !== undefined);
  return total;
}

/**
 * `createClient<typeof handler>(…)` types inputs, outputs and chunks: `Handler` is the type of a handler or of its
 * module, `typeof import('./handler.ts')`. @throws TypeError if the URL is invalid, or neither http nor https
 */
export function createClient<Handler = unknown>(options: ClientOptions): Client<Handler> {
  const caller = new ApiCaller(options);
  const { endpoint, sharedRequests: canShare = true } = options;
  const ofEndpoint = { endpoint };
  const submissions = new Submissions({ caller, endpoint, canShare });
  const ofJob = (job: string) => ({ endpoint, job });
  const client: Client<Handler> = {
    run: async (input, submitOptions = {}) =>
      submissions.submit(await composeSubmission(input, submitOptions)),
    runMany: (jobs, runOptions = {}) => runMany({ caller, endpoint }, jobs, runOptions),
    runsync: async (input, syncOptions = {}) => {
      const { cancelOnDisconnect, signal, waitMs, traceparent, tracestate, ...rest } = syncOptions;
      requireJsonInput(input);
      const text = JSON.stringify({ input, ...rest });
      return caller.json<JobRecord<OutputOf<Handler>>>({
        ...callOf(JOB_ROUTES.runJobSync, ofEndpoint),
        headers: await chooseTrace({ traceparent, tracestate }),
        query: { wait: waitMs, ...(cancelOnDisconnect && { cancelOnDisconnect: 'true' }) },
        text,
        repeatable: rest.idempotencyKey !== undefined,
        signal,
      });
    },
    details: (jobId, { signal } = {}) =>
      caller.json<JobDetails>({ ...callOf(JOB_ROUTES.getJob, ofJob(jobId)), signal }),
    status: (jobId, { signal, ttlMs } = {}) =>
      caller.json<JobRecord<OutputOf<Handler>>>({
        ...callOf(JOB_ROUTES.getJobStatus, ofJob(jobId)),
        query: { ttl: ttlMs },
        signal,
      }),
    wait: (jobId, { signal } = {}) => waitForEnd(caller, ofJob(jobId), signal),
    runAll: (inputs, runOptions = {}) => runAll(client, inputs, runOptions),
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
    pause: ({ signal, ...body } = {}) =>
      caller.json<Pause>({ ...callOf(JOB_ROUTES.pauseQueue, ofEndpoint), body, signal }),
    resume: async ({ signal, ...body } = {}) => {
      await caller.answer({ ...callOf(JOB_ROUTES.resumeQueue, ofEndpoint), body, signal });
    },
    pauses: async ({ signal } = {}) => {
      const call = callOf(JOB_ROUTES.getPauses, ofEndpoint);
      return (await caller.json<PauseList>({ ...call, signal })).pauses;
    },
    health: ({ signal } = {}) =>
      caller.json<EndpointHealth>({ ...callOf(JOB_ROUTES.getEndpointHealth, ofEndpoint), signal }),
    inputSchema: ({ signal } = {}) =>
      caller.json<InputSchemaRecord>({ ...callOf(JOB_ROUTES.getInputSchema, ofEndpoint), signal }),
    jobs: ({ signal, ...query } = {}) =>
      caller.json<JobList>({ ...callOf(JOB_ROUTES.listJobs, ofEndpoint), query, signal }),
    changeJobs: (change, filter, options = {}) =>
      changeJobs(caller, callOf(JOB_ROUTES.changeJobs, ofEndpoint), { change, filter, ...options }),
    flows: connectFlows(caller, endpoint),
    batches: connectBatches(caller, endpoint),
    failedJob: (jobId, { signal } = {}) =>
      caller.json<FailedJob>({ ...callOf(JOB_ROUTES.getFailedJob, ofJob(jobId)), signal }),
    resubmit: async (ids, { signal } = {}) => {
      const call = callOf(JOB_ROUTES.resubmitJobs, ofEndpoint);
      const body = { ids };
      const answer = await caller.json<ResubmittedJobs>({
        ...call,
        body,
        repeatable: true,
        signal,
      });
      return answer.jobs;
    },
    deleteFailed: async (ids, { signal } = {}) => {
      const call = callOf(JOB_ROUTES.deleteFailedJobs, ofEndpoint);
      const answer = await caller.json<{ deleted: number }>({ ...call, body: { ids }, signal });
      return answer.deleted;
    },
    log: (jobId, logOptions = {}) =>
      readLogPage(caller, fillPath(JOB_ROUTES.getJobLog, ofJob(jobId)), logOptions),
    followLog: (jobId, logOptions = {}) =>
      followLog(caller, fillPath(JOB_ROUTES.getJobLog, ofJob(jobId)), logOptions),
  };
  return client;
}
