// Schemas of the API's responses about jobs and errors. Only the OpenAPI document uses them; outgoing
// responses are not validated. The types are in job.ts, endpoint.ts, chunk.ts and problem.ts.
import { z } from 'zod';
import type { Chunk } from './chunk/chunk.ts';
import {
  type AttemptError,
  type AttemptUsage,
  STOP_LEVELS,
  STUCK_STATES,
  VRAM_SCOPES,
} from './job/attempt.ts';
import {
  ERROR_CODES,
  JOB_STATUSES,
  type JobDetailsHead,
  type JobRecord,
  type JobSummary,
  type RunJobsAnswer,
  TIMELINE_EVENTS,
  type TimelineEntry,
} from './job/job.ts';
import { WAIT_CODES, type WaitReason } from './job/wait-reason.ts';
import type { Json } from './json.ts';
import { PROBLEMS, type Problem, type ProblemCode } from './problem.ts';
import type { EndpointHealth, InputSchemaRecord } from './resources/endpoint.ts';

const jobStatus = z.enum(JOB_STATUSES);
const errorCode = z.enum(ERROR_CODES);
const count = z.int().min(0);
const wholeMs = z.int().min(0);

export const jobReference = z.object({ id: z.string(), status: jobStatus });

const attemptError = z.object({
  code: errorCode,
  message: z.string(),
  type: z.string().exactOptional(),
  stack: z.string().exactOptional(),
  stuck: z
    .object({
      state: z.enum(STUCK_STATES),
      stack: z.string().exactOptional(),
      chunks: count,
      lastChunkMs: wholeMs.exactOptional(),
      eventLoopUtilization: z.number().min(0).max(1).exactOptional(),
      heapUsedBytes: count.exactOptional(),
    })
    .exactOptional(),
}) satisfies z.ZodType<AttemptError>;

const runOfAttempt = {
  run: count
    .exactOptional()
    .describe('Run of the job, from 2: each retry by a client begins one. Absent in the first run'),
  runAttempt: count
    .exactOptional()
    .describe(
      'Number of the attempt in its run; `attempt` counts over all runs. Absent in the first run',
    ),
};

const attemptUsage = z.object({
  gpu: z
    .object({
      seconds: z
        .number()
        .min(0)
        .describe('Devices × seconds; an equal share of time with other attempts in the process'),
      vramPeakBytes: count.exactOptional().describe('Highest device memory in use'),
      vramMeanBytes: count.exactOptional().describe('Mean device memory in use'),
      vramScope: z
        .enum(VRAM_SCOPES)
        .exactOptional()
        .describe(
          '`process`: memory of the worker process and its children; `devices`: of all processes on the devices',
        ),
      utilizationMean: z
        .number()
        .min(0)
        .max(1)
        .exactOptional()
        .describe('Share of time in which a kernel ran, mean over the devices'),
      energyJoules: z
        .number()
        .min(0)
        .exactOptional()
        .describe('Energy of the devices; an equal share of time with other attempts'),
      shared: z
        .boolean()
        .describe(
          'Other attempts ran in the process; memory and utilization are those of all together',
        ),
    })
    .exactOptional()
    .describe('Absent without a GPU; a figure that nothing measured is absent'),
}) satisfies z.ZodType<AttemptUsage>;

export const waitReason = z.object({
  code: z.enum(WAIT_CODES),
  message: z.string(),
  since: z.int().exactOptional().describe('Since when, Unix ms'),
  until: z
    .int()
    .exactOptional()
    .describe('When the wait ends or the next worker start is tried, Unix ms'),
}) satisfies z.ZodType<WaitReason>;

export const jobRecord = z.object({
  id: z.string(),
  status: jobStatus,
  delayTime: wholeMs.describe('Milliseconds in the queue before the start of the current attempt'),
  executionTime: wholeMs.describe(
    'Duration of the last attempt in milliseconds; of the running attempt so far; 0 before the first',
  ),
  attempt: count,
  output: z.unknown().exactOptional(),
  outputBytes: count
    .exactOptional()
    .describe('Size of an output that is too large for the record; read it from the stream'),
  error: attemptError
    .extend({
      attempts: z.array(
        z.object({
          attempt: z.int().min(1),
          ...runOfAttempt,
          code: errorCode,
          message: z.string(),
          workerId: z.string(),
          startedAt: z.int().describe('Unix ms'),
          endedAt: z.int().describe('Unix ms'),
          usage: attemptUsage.exactOptional(),
          outgrownGpuType: z
            .string()
            .exactOptional()
            .describe(
              'GPU type on which the attempt ran out of memory; set if the next attempt needed a later type',
            ),
        }),
      ),
    })
    .exactOptional(),
  workerId: z.string().exactOptional(),
  group: z.string().exactOptional().describe('`policy.group` of the job'),
  progress: z.unknown().exactOptional(),
  usage: attemptUsage
    .exactOptional()
    .describe('What the last attempt used; set once it has ended, if its worker measures it'),
  waitReason: waitReason
    .exactOptional()
    .describe('Why the job waits; set only while its status is IN_QUEUE'),
}) satisfies z.ZodType<JobRecord>;

export const jobSummary = z.object({
  id: z.string(),
  status: jobStatus,
  attempt: count,
  ...runOfAttempt,
  submittedAt: z.int().describe('Unix ms'),
  delayTime: wholeMs,
  executionTime: wholeMs,
  workerId: z.string().exactOptional().describe('Of the running or the last attempt'),
  error: z
    .object({ code: errorCode, message: z.string() })
    .exactOptional()
    .describe('Error of the last failed attempt, with the first 500 characters of its message'),
  inputPreview: z
    .string()
    .exactOptional()
    .describe('First 300 characters of the input as JSON text; absent above 16 KB'),
  inputBytes: count.exactOptional(),
}) satisfies z.ZodType<JobSummary>;

const timelineEntry = z.object({
  at: z.int().describe('Unix ms'),
  event: z
    .enum(TIMELINE_EVENTS)
    .describe(
      '`queued`: again, after a failure. `due`: the job may start then. `lease_lost`: the worker did not renew the ' +
        'lease. `released`: the worker gave the job back. `stopped`: the worker stopped the handler, after a cancel or a timeout. ' +
        '`retried`: a client retried the job. `model_wait`: the attempt waited for the start of a model process. `ended`: the job has its last status. Of each event of earlier runs, and of each ' +
        'of `first_chunk`, `model_wait`, `stopped`, `released`, `retried` and the events of the webhook, the last 5',
    ),
  attempt: count
    .exactOptional()
    .describe(
      'Attempt of the job; of events of the webhook, attempt to deliver it; of `retried`, the last one before',
    ),
  ...runOfAttempt,
  workerId: z.string().exactOptional(),
  code: errorCode.exactOptional(),
  message: z.string().exactOptional(),
  outgrownGpuType: z
    .string()
    .exactOptional()
    .describe('GPU type on which the attempt ran out of memory'),
  waitedMs: wholeMs
    .exactOptional()
    .describe('Of `model_wait`: how long, in all; not part of `executionTime`'),
  level: z
    .enum(STOP_LEVELS)
    .exactOptional()
    .describe(
      'Of `stopped`: the last step that was needed. `signal`: the handler ended by itself. `return`: the generator was ended. ' +
        '`thread`, `process`: the worker ended the thread or its process',
    ),
  nextAt: z
    .int()
    .exactOptional()
    .describe('Of `webhook_failed`: when the platform tries again, Unix ms'),
  status: jobStatus.exactOptional(),
}) satisfies z.ZodType<TimelineEntry>;

export const jobDetails = jobSummary.extend({
  queuedAt: z.int().describe('Unix ms; when the job was submitted, or last queued again'),
  availableAt: z
    .int()
    .exactOptional()
    .describe('Unix ms before which the job does not start; absent unless it waits for this time'),
  startedAt: z.int().nullable().describe('Unix ms; when the last attempt began'),
  endedAt: z.int().nullable().describe('Unix ms'),
  expiresAt: z.int().describe('Unix ms; when the platform removes the job, in any status'),
  executionTimeout: wholeMs.describe('Longest run of an attempt, ms'),
  maxAttempts: count,
  priority: z.int().min(-1).max(9).describe('Higher first; -1: low priority of the RunPod API'),
  group: z.string().exactOptional(),
  chunks: count.describe('Chunks of the last attempt so far'),
  logBytes: count.describe('Size of the log so far, bytes'),
  timeline: z.array(timelineEntry).describe('What happened, the oldest first'),
  progress: z.unknown().exactOptional().describe('Of a running job that has reported some'),
  waitReason: waitReason.exactOptional().describe('Only while the job is IN_QUEUE'),
  input: z
    .custom<object>()
    .meta({ type: 'object', additionalProperties: true })
    .exactOptional()
    .describe('As it was submitted; absent with `input=false`'),
}) satisfies z.ZodType<JobDetailsHead & { input?: object }>;

export const jobList = z.object({
  jobs: z.array(jobSummary).describe('Newest first'),
  cursor: z.string().exactOptional(),
});

export const purgeAnswer = z.object({ removed: count, status: z.literal('completed') });

export const endpointHealth = z.object({
  jobs: z.object({
    completed: count,
    failed: count,
    inProgress: count,
    inQueue: count,
    retried: count,
  }),
  workers: z.object({ idle: count, running: count }),
}) satisfies z.ZodType<EndpointHealth>;

export const inputSchemaRecord = z.object({
  schema: z
    .custom<Readonly<Record<string, unknown>>>()
    .meta({ type: 'object', additionalProperties: true })
    .nullable()
    .describe('JSON Schema, as a worker sent it, at most 64 KB; null: none is known'),
  version: z.int().nullable().describe('Deployed version of the handler; null without one'),
  updatedAt: z.int().nullable().describe('Unix ms; when the schema was last another one'),
}) satisfies z.ZodType<InputSchemaRecord>;

const streamedChunk = z.object({
  output: z.custom<Json>().describe('One yielded value, or a piece of a large one'),
  metrics: z.record(z.string(), z.number()),
}) satisfies z.ZodType<Chunk>;

export const chunkPage = z.array(streamedChunk);

export const platformState = z.object({
  status: z.enum(['ok', 'ready']),
  version: z.string(),
  warnings: z
    .array(z.string())
    .exactOptional()
    .describe('Problems that need attention while the platform keeps serving; only in /readyz'),
});

// The cast is safe: `as const` makes the keys exactly this type.
const problemCodes = Object.keys(PROBLEMS) as ProblemCode[];

export const problem = z.object({
  title: z.string(),
  status: z.int(),
  detail: z.string(),
  code: z.enum(problemCodes).describe('Error code, for programs'),
  errors: z
    .array(z.string())
    .exactOptional()
    .describe('Validation errors; each names the path and the problem'),
}) satisfies z.ZodType<Problem>;

export const submittedJobs = z.object({
  jobs: z
    .array(
      z.union([jobReference, z.object({ error: problem.describe('Why the job was refused') })]),
    )
    .describe('In the order of the request'),
}) satisfies z.ZodType<RunJobsAnswer>;
