// A job as clients see it: statuses, submission request and limits, why it waits, and the error of one that ended without an
// output. Workers load this file, so what needs zod is elsewhere: the records in job-records.ts, checks of requests in
// job-schemas.ts.
import type { JobRecord, RunOfAttempt } from './job-records.ts';
import type { RetryPolicy } from './retry-policy.ts';

export const JOB_STATUSES = [
  'IN_QUEUE',
  'IN_PROGRESS',
  'COMPLETED',
  'FAILED',
  'CANCELLED',
  'TIMED_OUT',
] as const;
export type JobStatus = (typeof JOB_STATUSES)[number];

export type TerminalStatus = Exclude<JobStatus, 'IN_QUEUE' | 'IN_PROGRESS'>;

export function isTerminal(status: JobStatus): status is TerminalStatus {
  return status !== 'IN_QUEUE' && status !== 'IN_PROGRESS';
}

/** 1 MB of a payload is 2^20 bytes; only the limit of a chunk is decimal (see chunk.ts). */
const MB = 1_048_576;

export const LIMITS = {
  runBodyBytes: 10 * MB,
  runsyncBodyBytes: 20 * MB,
  /** Jobs that one request submits. */
  jobsOfRequest: 100,
  outputBytes: 20 * MB,
  /** Total size of all chunks of one attempt. */
  chunkTotalBytes: 1024 * MB,
  /** Total size of the chunks in one response of `GET /stream`, without brackets and commas. */
  streamAnswerBytes: 8 * MB,
  jobLogBytes: MB,
  progressBytes: 65_536,
  waitMs: { min: 1_000, max: 300_000, default: 90_000 },
  streamWaitMs: { min: 0, max: 300_000, default: 10_000 },
  ttlMs: { min: 10_000, max: 604_800_000, default: 86_400_000 },
  executionTimeoutMs: { min: 1_000, max: 604_800_000, default: 600_000 },
  delayMs: { min: 0, max: 604_800_000 },
  /** Jobs that one job waits for. */
  parentsOfJob: 1_000,
  /** Jobs that wait for one job. */
  childrenOfJob: 1_000,
  jobsOfFlow: 1_000,
  edgesOfFlow: 10_000,
  /** Flows of a user that have not ended. */
  openFlowsOfUser: 1_000,
  /** Records of flows of a user. */
  keptFlowsOfUser: 20_000,
  /** A flow that has ended is removed when it is so old, ms. */
  flowRetentionMs: 86_400_000,
  /** Longest wait of a job for its parents, ms: 30 days. */
  parentWaitMs: 2_592_000_000,
  /** Steps, children and sleeps of one job, over all of its attempts. */
  stepsOfJob: 1_000,
  stepNameCharacters: 128,
  /** JSON of the result of one step, or the output of one child for its parent. */
  stepBytes: MB,
  /** All that a job remembers of its steps, children and sleeps. */
  memoBytes: 4 * MB,
  /** Children that a job starts and awaits at once. */
  awaitedChildren: 100,
  /** JSON of what they are, with their inputs. */
  waitBytes: 4 * MB,
  /** A job that no handler has started has the depth 0, its children 1. */
  childDepth: 8,
  groupCharacters: 64,
  tagsOfJob: 10,
  /** Longest time for which a handler may pause the group of its job. */
  pauseGroupMs: 86_400_000,
  /** Longest pause of a shared limit by a handler, ms: nobody can end it. */
  pauseLimitMs: 3_600_000,
  /** Of a name that refers to a resource. */
  nameCharacters: 200,
  /** An input with the outputs of parents. */
  filledInputBytes: 20 * MB,
  /** Groups of an endpoint that are paused at once. */
  pausesOfEndpoint: 1_000,
  retentionMs: { run: 30 * 60_000, runsync: 60_000 },
} as const;

/** What one request does with the jobs that match a filter. */
export const JOB_CHANGES = ['cancel', 'retry', 'delete'] as const;
export type JobChange = (typeof JOB_CHANGES)[number];

/** Statuses that allow the change, in the order in which jobs pass through them. */
export const CHANGED_STATUSES = {
  cancel: ['IN_QUEUE', 'IN_PROGRESS'],
  retry: ['FAILED', 'TIMED_OUT'],
  delete: ['COMPLETED', 'FAILED', 'TIMED_OUT', 'CANCELLED'],
} as const satisfies Record<JobChange, readonly JobStatus[]>;

/** Wait before a job that was refused because the queue is full is submitted again, ms. */
export const QUEUE_FULL_RETRY_MS = 5_000;

/** Failed jobs that one request submits again or deletes. */
export const MAX_FAILED_IDS = 100;

/** Reasons why an attempt ended without a result: the closed list behind `error.code`. */
export const ERROR_CODES = [
  'handler_error',
  'handler_not_loaded',
  'input_invalid',
  'output_invalid',
  'output_too_large',
  'output_incomplete',
  'execution_timeout',
  'out_of_memory',
  'memory_limit_exceeded',
  'gpu_out_of_memory',
  'gpu_context_lost',
  'handler_exited',
  'uncaught_exception',
  'unhandled_rejection',
  'thread_crashed',
  'model_process_crashed',
  'worker_crashed',
  'lease_expired',
  'released_too_often',
  'parent_failed',
  'wait_failed',
] as const;
export type ErrorCode = (typeof ERROR_CODES)[number];

/** For people: `2`, or `1 of run 2`. */
export function numberAttempt(of: RunOfAttempt & { attempt?: number }): string {
  const { attempt, run, runAttempt } = of;
  return run === undefined ? `${attempt}` : `${runAttempt} of run ${run}`;
}

export const TIMELINE_EVENTS = [
  'submitted',
  'queued',
  'due',
  'worker_started',
  'worker_woken',
  'started',
  'model_wait',
  'first_chunk',
  'suspended',
  'resumed',
  'stopped',
  'failed',
  'lease_lost',
  'released',
  'waiting',
  'postponed',
  'retried',
  'ended',
  'webhook_failed',
  'webhook_delivered',
  'webhook_given_up',
] as const;

/**
 * What becomes of a job if a parent ends without COMPLETED. `fail`: the job is FAILED. `run`: it runs nevertheless. `skip`:
 * it is CANCELLED, and so are its own children unless they run nevertheless.
 */
export const PARENT_POLICIES = ['fail', 'run', 'skip'] as const;
export type ParentPolicy = (typeof PARENT_POLICIES)[number];

/** How a parent ended for its children. `SKIPPED`: CANCELLED because of its own parents. */
export const PARENT_ENDS = [
  'COMPLETED',
  'FAILED',
  'TIMED_OUT',
  'CANCELLED',
  'SKIPPED',
  'REMOVED',
] as const;
export type ParentEnd = (typeof PARENT_ENDS)[number];

/** A job that must end before another one starts. */
export interface ParentReference {
  id: string;
  /** Endpoint of the parent. Default: that of the job. */
  endpoint?: string;
  /** Default: `fail`. */
  onFailure?: ParentPolicy;
  /** Member of the job's input that gets the output of the parent; null if the parent has not COMPLETED. */
  as?: string;
}

/** Options of one job; whole numbers within LIMITS. */
export interface JobPolicy {
  /** Longest run of an attempt, ms. Default: the endpoint's. */
  executionTimeout?: number;
  /** Time from when the job is due until the platform removes it, in any status, ms. Waits for a delay or a retry do not count. */
  ttl?: number;
  /** 0 to 9, higher first. */
  priority?: number;
  /** Time after submission before which the job does not start, ms. */
  delay?: number;
  /** The groups of one priority share the GPU time: 1 to 64 characters. Default: the group of all jobs without one. */
  group?: string;
  /** To find the job by: at most 10, each 1 to 64 letters, digits or `_ . : / = @ + -`. */
  tags?: string[];
  /** Whether and when failed attempts are retried. Default: as the handler, the endpoint and the platform say. */
  retry?: RetryPolicy;
}

/** Destination for files that a job creates; at most 8,192 characters as JSON. */
export interface S3Config {
  accessId?: string;
  accessSecret?: string;
  bucketName?: string;
  endpointUrl?: string;
  objectPath?: string;
}

/** Longest JSON text of an S3Config, characters. */
export const MAX_S3_CONFIG_LENGTH = 8_192;

/** The body of run and runsync. */
export interface RunRequest {
  /** The platform checks only that it is an object. */
  input: object;
  policy?: JobPolicy;
  /** http or https, at most 2,048 characters: the platform posts the final record there. */
  webhook?: string;
  /** 1 to 255 characters. */
  idempotencyKey?: string;
  /** Jobs that must end before this one starts: IDs, or IDs with more; at most 1,000. */
  after?: (string | ParentReference)[];
}

/** An edge of a flow: a job of it that must end before another one starts. */
export interface FlowEdge {
  /** Name of the parent. */
  job: string;
  /** Default: `fail`. */
  onFailure?: ParentPolicy;
  /** Member of the job's input that gets the output of the parent; null if the parent has not COMPLETED. */
  as?: string;
}

/** A job of a flow. */
export interface FlowJobRequest extends Omit<RunRequest, 'after' | 'idempotencyKey'> {
  /** Unique in the flow: 1 to 64 letters, digits, dots, `_` or `-`. */
  name: string;
  /** ID or name. Default: the endpoint to which the flow is submitted. */
  endpoint?: string;
  /** Jobs of the flow that must end before this one starts: names, or names with more. */
  after?: (string | FlowEdge)[];
}

/** The body of a request that submits a graph of jobs. */
export interface FlowRequest {
  /** 1 to 1,000, in any order. */
  jobs: FlowJobRequest[];
  /** 1 to 255 characters: the same key with the same body returns the first flow while it is kept. */
  idempotencyKey?: string;
}

/** The body of a request that submits several jobs. */
export interface RunJobsRequest {
  /** 1 to 100. */
  jobs: RunRequest[];
}

/**
 * Why a queued job waits. queue/waits.ts decides, docs/why-jobs-wait.md explains each code. `no_gpu`,
 * `no_capacity`, `budget`, `at_maximum` and `crashed` are also causes of scaling decisions.
 */
export const WAIT_CODES = [
  /** A parent of the job has not ended. */
  'waits_for_parent',
  /** Its handler waits for children that have not ended. */
  'waits_for_child',
  /** Its handler sleeps. */
  'sleeping',
  /** The delay of the job's policy is not over. */
  'delayed',
  /** The last attempt failed; the next one comes later. */
  'backing_off',
  /** The endpoint is paused. */
  'paused',
  /** The group of the job is paused. */
  'group_paused',
  /** As many jobs of the endpoint, or of its group, have started as a rate limit allows. */
  'rate_limited',
  /** A limit that several endpoints share lets no job start now, or a handler has paused it. */
  'shared_limit',
  /** As many jobs of its group run as the endpoint allows. */
  'group_at_limit',
  /** It ran out of memory on a GPU type, and no worker of a later type of the endpoint's list is connected. */
  'later_gpu_type',
  /** It must run alone in its process, and every worker still runs other jobs. */
  'runs_alone',
  /** A worker has a free slot and takes the job in its turn. */
  'worker_ready',
  /** All workers run other jobs. */
  'workers_busy',
  /** All workers run other jobs, and the endpoint has `workersMax` workers. */
  'at_maximum',
  /** No worker is connected, and the platform starts none now. */
  'no_worker',
  /** A worker starts. */
  'worker_starting',
  /** The image of the worker that starts is being pulled. */
  'image_pull',
  /** Workers end before they become ready. */
  'crashed',
  /** Workers cannot load the handler. */
  'handler_not_loaded',
  /** No version of the handler is deployed. */
  'no_version',
  /** No GPU of the endpoint's types is free. */
  'no_gpu',
  /** No machine has capacity for another worker. */
  'no_capacity',
  /** A budget is used up. */
  'budget',
] as const;
export type WaitCode = (typeof WAIT_CODES)[number];

/** The job ended with a status other than COMPLETED. */
export class JobFailedError extends Error {
  override readonly name = 'JobFailedError';
  /** The record that `GET /status` returns. */
  readonly record: JobRecord;

  constructor(record: JobRecord) {
    super(`job ${record.id} is ${record.status}: ${record.error?.message ?? 'no error given'}`);
    this.record = record;
  }

  /** `millrace/client` has a copy of this class, because it shares no module with the rest of the package. */
  static override [Symbol.hasInstance](value: unknown): value is JobFailedError {
    return value instanceof Error && value.name === 'JobFailedError' && 'record' in value;
  }
}
