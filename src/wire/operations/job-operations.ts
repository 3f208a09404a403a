// The job operations of an endpoint.
import { z } from 'zod';
import { ERROR_CODES, JOB_STATUSES, LIMITS } from '../job/job.ts';
import type { JobRecord } from '../job/job-records.ts';
import {
  changedJobs,
  chunkPage,
  deletedJobs,
  failedJobDetails,
  jobDetails,
  jobList,
  jobRecord,
  jobReference,
  purgeAnswer,
  resubmittedJobs,
  submittedJobs,
} from '../job/job-records.ts';
import {
  changeRequest,
  failedJobsRequest,
  idempotencyHeader,
  JOB_ID_PART,
  runJobsRequest,
  runRequest,
} from '../job/job-schemas.ts';
import { endpointHealth, inputSchemaRecord } from '../resources/endpoint.ts';
import { pause, pauseList, pauseRequest, resumeRequest } from '../resources/pause.ts';
import { JOB_ROUTES } from '../routes/routes.ts';
import {
  ANSWER_NOTHING,
  answerJson,
  bodyJson,
  describeOperations,
  JSON_TYPE,
  PAGE_PARAMETERS,
  type Parameter,
  TAGS_PARAMETER,
} from './operation.ts';

const { streamWaitMs, ttlMs, waitMs } = LIMITS;

const IDEMPOTENCY_KEY = {
  name: 'Idempotency-Key',
  schema: idempotencyHeader.exactOptional(),
  description:
    'same as `idempotencyKey` in the body: the same key with an equal body (as JSON; by its bytes if it is over 1 MB or has a number of 16 digits or more) returns the first job while it is kept',
};

const CANCEL_ON_DISCONNECT = {
  name: 'cancelOnDisconnect',
  schema: z.enum(['true', 'false']).default('false'),
  description:
    '`true`: the platform cancels the job if the connection ends before the answer is complete',
};

const JOB_ID = '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76';
const RUN_EXAMPLE = {
  input: { prompt: 'A lighthouse at dusk' },
  policy: { executionTimeout: 60_000 },
};
const RECORD_EXAMPLE: JobRecord = {
  id: JOB_ID,
  status: 'COMPLETED',
  delayTime: 12,
  executionTime: 1_840,
  attempt: 1,
  output: { url: 'https://files.example.com/lighthouse.png' },
  workerId: 'gpu-1',
};

const PAUSE_EXAMPLE = {
  group: 'customer-7',
  since: 1_768_469_400_000,
  until: null,
  reason: 'their quota is used up',
};

const ANY_TIME = z.int().min(0).exactOptional();

/** Of the list of jobs. */
const FILTERS: readonly Parameter[] = [
  {
    name: 'since',
    schema: ANY_TIME,
    description: 'only jobs that were submitted at or after this time, Unix ms',
  },
  {
    name: 'until',
    schema: ANY_TIME,
    description: 'only jobs that were submitted at or before this time, Unix ms',
  },
  {
    name: 'workerId',
    schema: z.string().exactOptional(),
    description: 'only jobs whose running or last attempt this worker had',
  },
  {
    name: 'errorCode',
    schema: z.enum(ERROR_CODES).exactOptional(),
    description: 'only jobs of which an attempt failed with this code',
  },
  {
    name: 'id',
    schema: z.string().regex(JOB_ID_PART).exactOptional(),
    description: 'only jobs whose ID contains this text',
  },
  TAGS_PARAMETER,
];

export const JOB_OPERATIONS = describeOperations('jobs', JOB_ROUTES, {
  runJob: {
    summary: 'Queue a job',
    description: `At most ${LIMITS.runBodyBytes} bytes. Kept ${LIMITS.retentionMs.run / 60_000} minutes after its end.`,
    headers: [IDEMPOTENCY_KEY],
    body: { schema: runRequest, example: RUN_EXAMPLE, maxBytes: LIMITS.runBodyBytes },
    answers: answerJson(jobReference, 'The job is on disk.', { id: JOB_ID, status: 'IN_QUEUE' }),
    refusals: [409],
  },
  runJobSync: {
    summary: 'Queue a job and wait for its end',
    description: `At most ${LIMITS.runsyncBodyBytes} bytes. If the wait ends first, the answer is the job's current record.`,
    query: [
      {
        name: 'wait',
        schema: z.int().min(waitMs.min).max(waitMs.max).default(waitMs.default),
        description: 'ms to wait, at most',
      },
      CANCEL_ON_DISCONNECT,
    ],
    headers: [IDEMPOTENCY_KEY],
    body: { schema: runRequest, example: RUN_EXAMPLE, maxBytes: LIMITS.runsyncBodyBytes },
    answers: answerJson(jobRecord, 'The record of the job.', RECORD_EXAMPLE),
    refusals: [409],
  },
  runJobs: {
    summary: 'Queue several jobs',
    description:
      `1 to ${LIMITS.jobsOfRequest} jobs, together at most ${LIMITS.runBodyBytes} bytes. Each is the body of one \`run\`. ` +
      'When the answer arrives, all accepted jobs are on disk. If the queue is full, the `idempotencyKey` of a job was ' +
      'used with another body, or the address of its webhook is not allowed, that job has an `error`, and the others ' +
      'are queued. If one job is invalid, the whole request is refused and no job is queued. To repeat the request ' +
      'safely, set the `idempotencyKey` of each job. The request counts as one call for each job.',
    body: {
      schema: runJobsRequest,
      example: { jobs: [RUN_EXAMPLE, { input: { prompt: 'A harbour at dawn' } }] },
      maxBytes: LIMITS.runBodyBytes,
    },
    answers: answerJson(submittedJobs, 'Each job with its ID, or with the reason of its refusal.', {
      jobs: [
        { id: JOB_ID, status: 'IN_QUEUE' },
        {
          error: {
            title: 'Queue is full',
            status: 429,
            code: 'queue_full',
            detail: "1000 jobs are queued, the endpoint's limit; retry later",
          },
        },
      ],
    }),
    refusals: [409],
  },
  getJobStatus: {
    summary: 'Show one job',
    query: [
      {
        name: 'ttl',
        schema: z.int().min(ttlMs.min).max(ttlMs.max).exactOptional(),
        description:
          'ms until the job is removed, from now or, for a delayed job, from when it is due; also needs `jobs:write`',
      },
      {
        name: 'wait',
        schema: z.int().min(waitMs.min).max(waitMs.max).exactOptional(),
        description:
          'ms to wait for the end of the job, at most; then the record as it is. Default: no wait',
      },
    ],
    answers: answerJson(jobRecord, 'The record of the job.', RECORD_EXAMPLE),
  },
  streamJob: {
    summary: 'Stream the chunks of a job',
    description:
      'Without `after` each call goes on where the one before ended. If the platform is killed right after an answer, ' +
      'the next call may repeat its chunks; calls with `after` repeat none. The stream is over when an answer is empty ' +
      'and `Millrace-Status` is final. With `Accept: text/event-stream`: one event a chunk until the end.',
    query: [
      {
        name: 'after',
        schema: z
          .string()
          .regex(/^(0|[1-9]\d{0,8}\.\d{1,9})$/)
          .exactOptional(),
        description:
          '`Millrace-Next` of an earlier answer: 0 for the start, or `<attempt>.<chunk>` of an attempt that has begun',
      },
      {
        name: 'wait',
        schema: z.int().min(streamWaitMs.min).max(streamWaitMs.max).default(streamWaitMs.default),
        description: 'ms to wait for the first chunk, at most',
      },
      {
        ...CANCEL_ON_DISCONNECT,
        description: `${CANCEL_ON_DISCONNECT.description}; also needs \`jobs:write\``,
      },
    ],
    headers: [
      {
        name: 'Last-Event-ID',
        schema: z.string().exactOptional(),
        description: 'with `text/event-stream`: same as `after`, and goes before it',
      },
    ],
    answers: {
      200: {
        description: 'Chunks, each at most 1,000,000 bytes.',
        content: {
          [JSON_TYPE]: {
            schema: chunkPage,
            example: [
              { output: { token: 'light' }, metrics: {} },
              { output: { token: 'house' }, metrics: { tokens: 2 } },
            ],
          },
          'text/event-stream': {
            schema: z.string(),
            example: 'id: 1.0\ndata: {"output":{"token":"light"},"metrics":{}}\n\n',
          },
        },
        headers: ['Millrace-Next', 'Millrace-Status', 'Millrace-Reset'],
      },
    },
    isStream: true,
  },
  cancelJob: {
    summary: 'Cancel a queued or running job',
    answers: answerJson(jobReference, 'The job is CANCELLED, or was already.', {
      id: JOB_ID,
      status: 'CANCELLED',
    }),
    refusals: [409],
  },
  retryJob: {
    summary: 'Queue a FAILED or TIMED_OUT job again',
    answers: answerJson(jobReference, 'The job is queued.', { id: JOB_ID, status: 'IN_QUEUE' }),
    refusals: [409],
  },
  purgeQueue: {
    summary: 'Cancel all queued jobs',
    answers: answerJson(purgeAnswer, 'Number of cancelled jobs.', {
      removed: 7,
      status: 'completed',
    }),
  },
  pauseQueue: {
    summary: 'Pause an endpoint, or one of its groups',
    description:
      'The endpoint goes on to accept jobs. After the answer no worker gets one of the paused jobs, and running jobs go on to their ' +
      'end. The pause is stored, and lasts until it is resumed or until `until`. A second call replaces `until` and `reason`. ' +
      `At most ${LIMITS.pausesOfEndpoint} groups of an endpoint are paused at once.`,
    body: bodyJson(pauseRequest, { group: 'customer-7', reason: 'their quota is used up' }),
    answers: answerJson(pause, 'The pause.', PAUSE_EXAMPLE),
    refusals: [409],
  },
  resumeQueue: {
    summary: 'Resume an endpoint, or one of its groups',
    description: 'Without `group` it ends the pause of the endpoint; paused groups stay paused.',
    body: bodyJson(resumeRequest, { group: 'customer-7' }),
    answers: ANSWER_NOTHING,
  },
  getPauses: {
    summary: 'Show the pauses of an endpoint and its groups',
    answers: answerJson(pauseList, 'The pauses that hold now.', { pauses: [PAUSE_EXAMPLE] }),
  },
  getEndpointHealth: {
    summary: 'Count jobs and workers',
    answers: answerJson(endpointHealth, 'Counts.', {
      jobs: { completed: 120, failed: 2, inProgress: 3, inQueue: 5, retried: 1 },
      workers: { idle: 1, running: 3 },
    }),
  },
  getInputSchema: {
    summary: "Show the JSON Schema of an endpoint's inputs",
    description:
      'Workers tell the platform what their handler accepts: the JSON Schema that its author wrote, or one derived from its ' +
      '`input` schema. The platform neither reads nor checks it; only the handler checks inputs. `schema` is null if no ' +
      'worker has said so, or the handler has none. If a version of the handler is deployed, the schema is that of this version.',
    answers: answerJson(inputSchemaRecord, 'The schema, or null.', {
      schema: {
        type: 'object',
        properties: { prompt: { type: 'string', description: 'What to draw' } },
        required: ['prompt'],
      },
      version: 3,
      updatedAt: 1_768_469_400_000,
    }),
  },
  listJobs: {
    summary: 'List jobs, newest first',
    description:
      'With another filter than `status`, a page looks at 20,000 jobs at most. It may then have few jobs, or none, and yet a ' +
      '`cursor`.',
    query: [
      {
        name: 'status',
        schema: z.enum(JOB_STATUSES).exactOptional(),
        description: 'only jobs of this status',
      },
      ...FILTERS,
      {
        name: 'previews',
        schema: z.enum(['true', 'false']).default('false'),
        description:
          '`true` adds `error`, `inputPreview` and `inputBytes` to each job; a page then has 100 jobs at most',
      },
      ...PAGE_PARAMETERS,
    ],
    answers: answerJson(jobList, 'One page.', {
      jobs: [
        {
          id: JOB_ID,
          status: 'COMPLETED',
          attempt: 1,
          submittedAt: 1_768_469_400_000,
          delayTime: 12,
          executionTime: 1_840,
        },
      ],
      cursor: 'MTc2ODQ2OTQwMDAwMDAwMA',
    }),
  },
  getJob: {
    summary: 'Show times, settings and the input of a job',
    description: 'Everything that `status` leaves out. The input is as it was submitted.',
    query: [
      {
        name: 'input',
        schema: z.enum(['true', 'false']).default('true'),
        description: '`false` leaves out the input, which may have 20 MB',
      },
    ],
    answers: answerJson(jobDetails, 'The job with its input.', {
      id: JOB_ID,
      status: 'COMPLETED',
      attempt: 1,
      delayTime: 12,
      executionTime: 1_840,
      submittedAt: 1_768_469_400_000,
      queuedAt: 1_768_469_400_000,
      startedAt: 1_768_469_400_012,
      endedAt: 1_768_469_401_852,
      expiresAt: 1_768_471_201_852,
      executionTimeout: 60_000,
      maxAttempts: 3,
      priority: 0,
      chunks: 0,
      logBytes: 0,
      timeline: [
        { at: 1_768_469_400_000, event: 'submitted' },
        { at: 1_768_469_400_012, event: 'started', attempt: 1, workerId: 'gpu-1' },
        { at: 1_768_469_401_852, event: 'ended', status: 'COMPLETED', attempt: 1 },
      ],
      input: RUN_EXAMPLE.input,
    }),
  },
  changeJobs: {
    summary: 'Cancel, retry or delete all jobs that match a filter',
    description:
      '`cancel` is for queued and running jobs, `retry` for FAILED and TIMED_OUT ones, `delete` for all that have ended. ' +
      'A request changes 1,000 jobs at most and looks at 20,000 at most, in slices between which others go ahead. It may then match ' +
      'none, and yet have a `cursor`: repeat it with `cursor` and `asOf` of the answer until there is none. A repeated request ' +
      'changes no job twice, if both name the same `asOf`. With `dryRun` it only counts.',
    body: bodyJson(changeRequest, {
      change: 'retry',
      filter: { tags: ['customer-7'], errorCode: 'gpu_out_of_memory' },
    }),
    answers: answerJson(changedJobs, 'How many jobs match, and how many have changed.', {
      matched: 12,
      changed: 12,
      asOf: 1_768_469_400_000,
    }),
  },
  getFailedJob: {
    summary: 'Show a failed job with error, timeline, input and log',
    description:
      'FAILED and TIMED_OUT jobs, also after their retention: for `failedRetention` of the endpoint. Other operations do not find ' +
      'such a job any more.',
    answers: answerJson(failedJobDetails, 'The failed job.', {
      id: JOB_ID,
      endpointId: 'echo',
      status: 'FAILED',
      attempt: 1,
      delayTime: 12,
      executionTime: 1_840,
      submittedAt: 1_768_469_400_000,
      queuedAt: 1_768_469_400_000,
      startedAt: 1_768_469_400_012,
      endedAt: 1_768_469_401_852,
      expiresAt: 1_769_074_201_852,
      executionTimeout: 60_000,
      maxAttempts: 1,
      priority: 0,
      chunks: 0,
      logBytes: 0,
      timeline: [{ at: 1_768_469_401_852, event: 'ended', status: 'FAILED', attempt: 1 }],
      error: { code: 'handler_error', message: 'no such model', attempts: [] },
      log: '',
      input: RUN_EXAMPLE.input,
    }),
    refusals: [409],
  },
  resubmitJobs: {
    summary: 'Submit failed jobs again, as new jobs',
    description:
      'Each new job has the input and the policy of the failed one, without its delay and its idempotency key, and names it as ' +
      '`retryOf`. A failed job is submitted again once: a second request answers with the same new job.',
    body: bodyJson(failedJobsRequest, { ids: [JOB_ID] }),
    answers: answerJson(
      resubmittedJobs,
      'Each job with the ID of its new job, or why there is none.',
      {
        jobs: [{ retryOf: JOB_ID, id: '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d99', isNew: true }],
      },
    ),
    refusals: [409],
  },
  deleteFailedJobs: {
    summary: 'Delete failed jobs with their inputs and logs',
    description: 'Jobs that have not failed, and those that are gone, are left out.',
    body: bodyJson(failedJobsRequest, { ids: [JOB_ID] }),
    answers: answerJson(deletedJobs, 'The number of deleted jobs.', { deleted: 1 }),
  },
  getJobLog: {
    summary: "Show what a job's handler logged",
    query: [
      {
        name: 'after',
        schema: z.int().min(0).default(0),
        description: 'bytes that are known already: `Millrace-Next` of the answer before',
      },
    ],
    answers: {
      200: {
        description: 'Lines of JSON. The last one may contain the number of omitted lines.',
        content: {
          'application/x-ndjson': {
            schema: z.string(),
            example: '{"level":30,"time":1768469400120,"msg":"model loaded"}\n',
          },
        },
        headers: ['Millrace-Next', 'Millrace-Status'],
      },
    },
  },
});
