// A job as clients see it: statuses, the record, the request that creates one, and the limits of both.
// Workers load this file; the request schemas are in job-schemas.ts.

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

/** 1 MB of a payload is 2^20 bytes; the limit of a chunk alone is decimal (see chunk.ts). */
const MB = 1_048_576;

export const LIMITS = {
  runBodyBytes: 10 * MB,
  runsyncBodyBytes: 20 * MB,
  outputBytes: 20 * MB,
  /** All chunks of one attempt together. */
  chunkTotalBytes: 1024 * MB,
  /** Chunks in one answer of `GET /stream`, before their brackets and commas. */
  streamAnswerBytes: 8 * MB,
  jobLogBytes: MB,
  waitMs: { min: 1_000, max: 300_000, default: 90_000 },
  streamWaitMs: { min: 0, max: 300_000, default: 10_000 },
  ttlMs: { min: 10_000, max: 604_800_000, default: 86_400_000 },
  executionTimeoutMs: { min: 1_000, max: 604_800_000, default: 600_000 },
  delayMs: { min: 0, max: 604_800_000 },
  retentionMs: { run: 30 * 60_000, runsync: 60_000 },
} as const;

/** Why an attempt ended without a result: the closed list behind `error.code`. */
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
  'handler_exited',
  'uncaught_exception',
  'unhandled_rejection',
  'thread_crashed',
  'worker_crashed',
  'lease_expired',
  'released_too_often',
] as const;
export type ErrorCode = (typeof ERROR_CODES)[number];

export const STUCK_STATES = ['running', 'waiting', 'unreachable'] as const;

/** Where an attempt was when it ran out of time or had to be stopped by force: what could be learnt. */
export interface StuckPlace {
  /**
   * `running`: JavaScript in its thread. `waiting`: none of its code ran, a promise had not settled.
   * `unreachable`: the thread answered nothing in time; it was in native code, collected garbage, or
   * got no processor time.
   */
  state: (typeof STUCK_STATES)[number];
  /** What its thread ran, innermost first; at most 8,000 characters. */
  stack?: string;
  /** Chunks that had left the handler by then. */
  chunks: number;
  /** ms since the last of them. */
  lastChunkMs?: number;
  /** Share of time, 0 to 1, that its thread was busy: since the stop was asked for, or over the run. */
  eventLoopUtilization?: number;
  /** Of its thread. */
  heapUsedBytes?: number;
}

/** What one attempt failed with. */
export interface AttemptError {
  code: ErrorCode;
  message: string;
  /** Class of the thrown error, where there was one. */
  type?: string;
  stack?: string;
  stuck?: StuckPlace;
}

export interface FailedAttempt {
  attempt: number;
  code: ErrorCode;
  message: string;
  workerId: string;
  /** Unix ms. */
  endedAt: number;
}

/** `error` of a FAILED or TIMED_OUT job: the last attempt's error and the history of all of them. */
export interface JobError extends AttemptError {
  attempts: FailedAttempt[];
}

/** The job record of status and runsync. Times are whole milliseconds. */
export interface JobRecord {
  id: string;
  status: JobStatus;
  /** From (re)queueing to the start of the attempt. */
  delayTime: number;
  /** Of the last attempt; so far while it runs; 0 before. */
  executionTime: number;
  attempt: number;
  output?: unknown;
  /** Size of a streamed output that is too large to be given whole; read it from the stream. */
  outputBytes?: number;
  error?: JobError;
  workerId?: string;
  progress?: unknown;
}

/** One row of the job list. Times are Unix ms. */
export interface JobSummary {
  id: string;
  status: JobStatus;
  attempt: number;
  submittedAt: number;
  delayTime: number;
  executionTime: number;
}

/** What a client may ask for one job; whole numbers within LIMITS. */
export interface JobPolicy {
  /** ms an attempt may run. Default: the endpoint's. */
  executionTimeout?: number;
  /** ms from submission after which the job is removed, whatever its state. */
  ttl?: number;
  /** 0 to 9, higher first. */
  priority?: number;
  /** ms from submission before which it is not started. */
  delay?: number;
}

/** Where a client wants the files that a job makes; at most 8,192 characters as JSON. */
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
  /** Looked at only to see that it is an object. */
  input: object;
  policy?: JobPolicy;
  /** http or https, at most 2,048 characters: the record is posted there when the job has ended. */
  webhook?: string;
  /** 1 to 255 characters. */
  idempotencyKey?: string;
}
