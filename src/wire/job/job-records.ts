// The records of jobs that clients read: the schemas for the OpenAPI document, and the types that follow from them.
// Outgoing records are not validated.
import { z } from 'zod';
import type { Chunk } from '../chunk/chunk.ts';
import type { Json } from '../json.ts';
import type { Field, Shape } from '../link/fields.ts';
import { PARK_WAYS } from '../link/worker-link.ts';
import { PROBLEMS, type Problem, type ProblemCode } from '../problem.ts';
import { attemptError, attemptUsage, STOP_LEVELS, startParts } from './attempt.ts';
import {
  ERROR_CODES,
  JOB_STATUSES,
  PARENT_ENDS,
  PARENT_POLICIES,
  TIMELINE_EVENTS,
  WAIT_CODES,
} from './job.ts';

const jobStatus = z.enum(JOB_STATUSES);
const errorCode = z.enum(ERROR_CODES);
const tags = z.array(z.string()).readonly().exactOptional().describe('`policy.tags` of the job');
const count = z.int().min(0);
const wholeMs = z.int().min(0);

export const jobReference = z.object({ id: z.string(), status: jobStatus });

/** Where an attempt stands if a client has retried its job. */
const runOfAttempt = z.object({
  run: count
    .exactOptional()
    .describe('Run of the job, from 2: each retry by a client begins one. Absent in the first run'),
  runAttempt: count
    .exactOptional()
    .describe(
      'Number of the attempt in its run; `attempt` counts over all runs. Absent in the first run',
    ),
});
export type RunOfAttempt = z.infer<typeof runOfAttempt>;

export const waitReason = z.object({
  code: z.enum(WAIT_CODES),
  message: z.string(),
  since: z.int().exactOptional().describe('Since when, Unix ms'),
  until: z
    .int()
    .exactOptional()
    .describe('When the wait ends or the next worker start is tried, Unix ms'),
});
/** Why a queued job waits. */
export type WaitReason = z.infer<typeof waitReason>;

const usage = toSchema(attemptUsage).exactOptional();

const failedAttempt = z.object({
  attempt: z.int().min(1),
  ...runOfAttempt.shape,
  code: errorCode,
  message: z.string(),
  workerId: z.string(),
  startedAt: z.int().describe('Unix ms'),
  endedAt: z.int().describe('Unix ms'),
  usage,
  outgrownGpuType: z
    .string()
    .exactOptional()
    .describe(
      'GPU type on which the attempt ran out of memory; set if the next attempt needed a later type',
    ),
});
export type FailedAttempt = z.infer<typeof failedAttempt>;

/** The error of the last attempt, and the failed attempts of the job's last run. */
const jobError = toSchema(attemptError, z.object({ attempts: z.array(failedAttempt) }));
export type JobError = z.infer<typeof jobError>;

const suspendedSince = z
  .int()
  .exactOptional()
  .describe(
    'Since when the running attempt has been suspended for more urgent jobs, Unix ms; its execution timeout and `expiresAt` stand still',
  );

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
  error: jobError.exactOptional(),
  workerId: z.string().exactOptional(),
  suspendedSince,
  group: z.string().exactOptional().describe('`policy.group` of the job'),
  tags,
  progress: z.unknown().exactOptional(),
  usage: usage.describe(
    'What the last attempt used; set once it has ended, if its worker measures it',
  ),
  waitReason: waitReason
    .exactOptional()
    .describe('Why the job waits; set only while its status is IN_QUEUE'),
});
/** The record of status and runsync. */
export type JobRecord<Output = unknown> = Omit<z.infer<typeof jobRecord>, 'output'> & {
  output?: Output;
};

export const jobSummary = z.object({
  id: z.string(),
  status: jobStatus,
  attempt: count,
  ...runOfAttempt.shape,
  submittedAt: z.int().describe('Unix ms'),
  delayTime: wholeMs,
  executionTime: wholeMs,
  workerId: z.string().exactOptional().describe('Of the running or the last attempt'),
  tags,
  error: z
    .object({ code: errorCode, message: z.string() })
    .exactOptional()
    .describe('Error of the last failed attempt, with the first 500 characters of its message'),
  inputPreview: z
    .string()
    .exactOptional()
    .describe('First 300 characters of the input as JSON text; absent above 16 KB'),
  inputBytes: count.exactOptional(),
});
/**
 * One row of the job list, which has `run`, `runAttempt`, `error`, `inputPreview` and `inputBytes` only with previews.
 * `runAttempt` is 0 before the first attempt of a later run.
 */
export type JobSummary = z.infer<typeof jobSummary>;

export const shownStartParts = toSchema(startParts);

const timelineEntry = z.object({
  at: z.int().describe('Unix ms'),
  event: z
    .enum(TIMELINE_EVENTS)
    .describe(
      '`queued`: again, after a failure. `due`: the job may start then. `worker_started`, `worker_woken`: the job waited until ' +
        'this worker was ready, or back from being parked. `lease_lost`: the worker did not renew the ' +
        'lease. `released`: the worker gave the job back. `postponed`: the handler asked for a later attempt, without a failure. `waiting`: the attempt ended because its handler waits for children or sleeps. `stopped`: the worker stopped the handler, after a cancel or a timeout. ' +
        '`retried`: a client retried the job. `model_wait`: the attempt waited for the start of a model process. ' +
        '`suspended`: the attempt stands still, because a more urgent job has its GPU. `resumed`: it goes on, or has ended. `ended`: the job has its last status. Of each event of earlier runs, and of each ' +
        'of `worker_started`, `worker_woken`, `first_chunk`, `model_wait`, `suspended`, `resumed`, `stopped`, `released`, `waiting`, `postponed`, `retried` and the events of the webhook, the last 5',
    ),
  attempt: count
    .exactOptional()
    .describe(
      'Attempt of the job; of events of the webhook, attempt to deliver it; of `retried`, the last one before',
    ),
  ...runOfAttempt.shape,
  workerId: z.string().exactOptional(),
  code: errorCode.exactOptional(),
  message: z.string().exactOptional(),
  outgrownGpuType: z
    .string()
    .exactOptional()
    .describe('GPU type on which the attempt ran out of memory'),
  waitedMs: wholeMs
    .exactOptional()
    .describe(
      'Of `model_wait`, in all, and of `resumed`: how long; not part of `executionTime`. Of `worker_woken`: how long the worker took',
    ),
  start: shownStartParts
    .exactOptional()
    .describe('Of `worker_started`: where the time of the start went'),
  bytes: count.exactOptional().describe('Of `worker_woken`: GPU memory that it took back'),
  way: z
    .enum([...PARK_WAYS, 'cold'])
    .exactOptional()
    .describe('Of `worker_woken`: `cold`: its model has started anew'),
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
});
/** Something that happened to a job, or will: `due` lies in the future. */
export type TimelineEntry = z.infer<typeof timelineEntry>;

/** A job or a flow. */
const linked = z.object({ endpoint: z.string(), id: z.string() });

export const jobDetails = jobSummary.extend({
  queuedAt: z.int().describe('Unix ms; when the job was submitted, or last queued again'),
  availableAt: z
    .int()
    .exactOptional()
    .describe('Unix ms before which the job does not start; absent unless it waits for this time'),
  startedAt: z.int().nullable().describe('Unix ms; when the last attempt began'),
  suspendedSince,
  endedAt: z.int().nullable().describe('Unix ms'),
  expiresAt: z.int().describe('Unix ms; when the platform removes the job, in any status'),
  executionTimeout: wholeMs.describe('Longest run of an attempt, ms'),
  maxAttempts: count,
  priority: z.int().min(-1).max(9).describe('Higher first; -1: low priority of the RunPod API'),
  group: z.string().exactOptional(),
  parents: z
    .array(
      linked.extend({
        onFailure: z.enum(PARENT_POLICIES),
        as: z.string().exactOptional().describe('Member of the input that gets its output'),
        ended: z
          .enum(PARENT_ENDS)
          .exactOptional()
          .describe(
            'Absent while the parent has not ended; `REMOVED`: it was removed before its end',
          ),
      }),
    )
    .exactOptional()
    .describe('Jobs that must end before this one starts'),
  awaits: z
    .array(
      linked.extend({
        name: z.string().describe('Under which the handler has started it'),
        ended: z.enum(PARENT_ENDS).exactOptional().describe('Absent while it has not ended'),
      }),
    )
    .exactOptional()
    .describe(
      'Children that the handler has started and waits for; the job runs again when they have ended',
    ),
  children: z.array(linked).exactOptional().describe('Jobs that wait for the end of this one'),
  flow: linked
    .exactOptional()
    .describe('The flow that the job is part of, and the endpoint that keeps its record'),
  schedule: z
    .object({
      id: z.string().describe('ID of the schedule, which may be deleted by now'),
      tickAt: z.int().describe('When the tick was due, Unix ms'),
      triggered: z
        .literal(true)
        .exactOptional()
        .describe('A call of `trigger` made the job, or the resubmission of a failed one'),
    })
    .exactOptional()
    .describe('The tick of a schedule that made the job; absent if a client did'),
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
});
export type JobDetailsHead = Omit<z.infer<typeof jobDetails>, 'input'>;
/** What the record of a job leaves out. */
export type JobDetails = JobDetailsHead & { input: object };

export const jobList = z.object({
  jobs: z.array(jobSummary).describe('Newest first'),
  cursor: z.string().exactOptional(),
});

export const purgeAnswer = z.object({ removed: count, status: z.literal('completed') });

const streamedChunk = z.object({
  output: z.custom<Json>().describe('One yielded value, or a piece of a large one'),
  metrics: z.record(z.string(), z.number()),
}) satisfies z.ZodType<Chunk>;

export const chunkPage = z.array(streamedChunk);

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
});
/** The jobs in the order of the request, each accepted or refused. */
export type RunJobsAnswer = z.infer<typeof submittedJobs>;
export type SubmittedJob = RunJobsAnswer['jobs'][number];

/** What is known of a failed job: of one whose retention is over, too. */
export const failedJobDetails = jobDetails.extend({
  endpointId: z.string(),
  error: jobError.exactOptional(),
  retryOf: z
    .string()
    .exactOptional()
    .describe('ID of the failed job that was submitted again as this one'),
  retriedAs: z
    .string()
    .exactOptional()
    .describe('ID of the new job as which this one was submitted again'),
  log: z.string().describe('What the handler has logged, one JSON object a line'),
});
export type FailedJobDetails = Omit<z.infer<typeof failedJobDetails>, 'input'>;
export type FailedJob = FailedJobDetails & { input: object };

export const resubmittedJobs = z.object({
  jobs: z
    .array(
      z.union([
        z.object({
          retryOf: z.string().describe('ID of the failed job'),
          id: z.string().describe('ID of the new job'),
          isNew: z.boolean().describe('false: the failed job had been submitted again before'),
        }),
        z.object({
          retryOf: z.string(),
          error: problem.describe('Why the job was not submitted again'),
        }),
      ]),
    )
    .describe('In the order of the request'),
});
export type ResubmittedJobs = z.infer<typeof resubmittedJobs>;
export type ResubmittedJob = ResubmittedJobs['jobs'][number];

export const changedJobs = z.object({
  matched: count.describe('Jobs of this answer that match'),
  changed: count.describe('Those that have changed; 0 with `dryRun`'),
  asOf: z.int().describe('Unix ms'),
  cursor: z.string().exactOptional().describe('More jobs may match: repeat the request with it'),
});
export type ChangedJobs = z.infer<typeof changedJobs>;

export const deletedJobs = z.object({ deleted: count });

/** Makes the schema of a field of the worker link; that of a record with the members of `more`. */
function toSchema<T, More = unknown>(field: Field<T>, more?: z.ZodType<More>): z.ZodType<T & More> {
  const { shape } = more instanceof z.ZodObject ? more : { shape: {} };
  // The shape of a field describes its values.
  return describeField(field, shape) as z.ZodType<T & More>;
}

function describeField({ about, shape }: Field<unknown>, more: z.ZodRawShape = {}): z.ZodType {
  const schema = describeShape(shape, more);
  return about === undefined ? schema : schema.describe(about);
}

function describeShape(shape: Shape, more: z.ZodRawShape): z.ZodType {
  switch (shape.kind) {
    case 'text':
      return z.string();
    case 'number': {
      const { isWhole, max } = shape.shown ?? {};
      const schema = isWhole ? count : z.number().min(0);
      return max === undefined ? schema : schema.max(max);
    }
    case 'flag':
      return z.boolean();
    case 'whole':
      return count;
    case 'word':
      return z.enum(shape.words);
    case 'list':
      return z.array(describeField(shape.element));
    case 'record': {
      const members = Object.entries(shape.fields).map(([name, field]) => {
        const schema = describeField(field);
        return [name, 'isOptional' in field ? schema.exactOptional() : schema];
      });
      return z.object({ ...Object.fromEntries(members), ...more });
    }
    case 'union':
      return z.union(shape.cases.map((each) => describeField(each)));
  }
}
