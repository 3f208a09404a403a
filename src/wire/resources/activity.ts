// Schemas of what happens at endpoints: the overview of now, and time series of the last days.
import { z } from 'zod';
import { ERROR_CODES } from '../job/job.ts';
import { jobSummary, waitReason } from '../job/job-records.ts';
import {
  answerJson,
  describeOperations,
  pageCursor,
  TAGS_PARAMETER,
} from '../operations/operation.ts';
import { ACTIVITY_ROUTES } from '../routes/routes.ts';
import { ENDPOINT_TYPES } from './fields.ts';

const count = z.int().min(0);
const ms = z.number().min(0);

/** Share of the last hour's jobs that failed from which an endpoint is `failing`. */
export const FAILING_RATE = 0.1;

/** What is worst at an endpoint; the order is that of the overview. */
export const ENDPOINT_STATES = [
  'unreachable',
  'blocked',
  'rollout_failed',
  'failing',
  'paused',
  'waiting',
  'running',
  'ready',
  'idle',
] as const;
export type EndpointState = (typeof ENDPOINT_STATES)[number];

const workerStates = z.object({
  starting: count,
  idle: count.describe('Without a job'),
  running: count.describe('With a job'),
  draining: count,
  // A node of an earlier version knows of none.
  parked: count
    .default(0)
    .describe(
      'Their models have left the GPU, or are about to; they count towards none of the others',
    ),
});

/** What happens at an endpoint now, as nodes tell each other. */
export const endpointActivity = z.object({
  waiting: count.describe('Queued jobs, delayed ones included'),
  running: count,
  oldestWaitMs: ms.nullable().describe('Of the job that has waited longest; null if none waits'),
  waitReason: waitReason.nullable().describe('Why the next job waits; null if none waits'),
  paused: z.literal(true).exactOptional().describe('The endpoint is paused'),
  jobsPerSecond: z.number().min(0).describe('Ended jobs, over about the last minute'),
  failedLastHour: count.describe('FAILED and TIMED_OUT jobs'),
  failureRate: z
    .number()
    .min(0)
    .max(1)
    .nullable()
    .describe(
      'Share of the jobs that ended in the last hour that are FAILED or TIMED_OUT. CANCELLED jobs and inputs that the ' +
        "handler's schema refused do not count. null: no job ended",
    ),
  workers: workerStates,
});
export type EndpointActivity = z.infer<typeof endpointActivity>;

const endpointOverview = z.object({
  id: z.string(),
  name: z.string(),
  type: z.enum(ENDPOINT_TYPES),
  state: z
    .enum(ENDPOINT_STATES)
    .describe(
      '`unreachable`: no node answers for the endpoint now. `blocked`: jobs wait, and no worker is connected, parked or starting. ' +
        '`rollout_failed`: the last deployment of a version failed; `rollout` of the endpoint has the reason. ' +
        `\`failing\`: \`failureRate\` is ${FAILING_RATE} or more. \`paused\`: no job starts until it is resumed. \`waiting\`: jobs wait for workers. \`running\`: jobs run. ` +
        '`ready`: no jobs, and a worker is connected. `idle`: no jobs, and no workers but parked ones',
    ),
  ...endpointActivity.shape,
});
export type EndpointOverview = z.infer<typeof endpointOverview>;

export const overview = z.object({
  at: z.int().describe('Unix ms'),
  endpoints: z.array(endpointOverview).describe('Those with trouble first, at most 1,000'),
});
export type Overview = z.infer<typeof overview>;

const failedJob = jobSummary.extend({
  endpoint: z.object({ id: z.string(), name: z.string() }),
  endedAt: z.int().nullable().describe('Unix ms'),
  retryOf: z
    .string()
    .exactOptional()
    .describe('ID of the failed job that was submitted again as this one'),
  retriedAs: z
    .string()
    .exactOptional()
    .describe('ID of the new job as which this one was submitted again'),
});

const failedJobList = z.object({
  jobs: z.array(failedJob),
  unreachable: z.array(z.string()).describe('IDs of endpoints for which no node answers now'),
  cursor: pageCursor,
});
export type FailedJobList = z.infer<typeof failedJobList>;

/** Longest text that failed jobs are searched for. */
export const MAX_SEARCH = 200;

/** Jobs of one page of failed jobs. */
export const FAILED_LIMIT = { min: 1, max: 100, default: 20 };

const quantiles = z.object({ p50: ms, p95: ms });

const seriesPoint = z.object({
  at: z.int().describe('Unix ms of the start of the step'),
  submitted: count,
  completed: count,
  failed: count,
  timedOut: count,
  cancelled: count,
  retried: count,
  refused: count.describe(
    "FAILED because the handler's schema refused the input; part of `failed`",
  ),
  queued: count.describe('Highest number of queued jobs'),
  running: count.describe('Highest number of running jobs'),
  oldestWaitMs: ms.describe('Longest wait of a job that was queued'),
  waitMs: quantiles.nullable().describe('Times from the queue to the start; null: no job began'),
  executionMs: quantiles.nullable().describe('Run times of jobs that ended; null: none'),
  workers: workerStates.describe('Highest number of workers in each state'),
  workerSeconds: z.number().min(0),
  cost: z.number().min(0).describe('USD, from the prices of the catalog'),
});

export const endpointSeries = z.object({
  from: z.int(),
  to: z.int(),
  step: z.int().describe('ms'),
  points: z.array(seriesPoint).describe('One for each step, the oldest first'),
});
export type EndpointSeriesRecord = z.infer<typeof endpointSeries>;

/** Most points of one series. */
export const MAX_POINTS = 1_500;
/** Shortest step, ms. */
export const MIN_STEP_MS = 60_000;

const NO_WORKERS = { starting: 0, idle: 0, running: 0, draining: 0, parked: 0 };

const OVERVIEW_EXAMPLE = {
  id: 'ep_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d71',
  name: 'echo',
  type: 'QUEUE' as const,
  state: 'running' as const,
  waiting: 0,
  running: 2,
  oldestWaitMs: null,
  waitReason: null,
  jobsPerSecond: 1.5,
  failedLastHour: 0,
  failureRate: 0,
  workers: { ...NO_WORKERS, running: 2 },
};

const time = z.int().min(0).exactOptional();

export const ACTIVITY_OPERATIONS = describeOperations('console', ACTIVITY_ROUTES, {
  getOverview: {
    summary: 'Show what happens at each endpoint now',
    description:
      'Endpoints for whose jobs the key has `jobs:read`. All callers share an answer that is up to one second old.',
    answers: answerJson(overview, 'The endpoints.', {
      at: 1_768_469_412_000,
      endpoints: [OVERVIEW_EXAMPLE],
    }),
  },
  listFailedJobs: {
    summary: 'List the failed jobs of all endpoints, the last submitted first',
    description:
      'FAILED and TIMED_OUT jobs of the endpoints for whose jobs the key has `jobs:read`, at most 1,000 endpoints, by the time ' +
      'of their submission. A page examines at most about 20,000 jobs, so it may have few jobs, or none, and still a `cursor`. ' +
      'An endpoint keeps failed jobs for its `failedRetention`, beyond the retention of other ended jobs; those beyond it come last.',
    query: [
      {
        name: 'endpoint',
        schema: z.string().exactOptional(),
        description: 'only jobs of this endpoint, by ID or name',
      },
      {
        name: 'errorCode',
        schema: z.enum(ERROR_CODES).exactOptional(),
        description: 'only jobs of which an attempt failed with this code',
      },
      TAGS_PARAMETER,
      {
        name: 'since',
        schema: z.int().min(0).exactOptional(),
        description: 'only jobs that ended at or after this time, Unix ms',
      },
      {
        name: 'until',
        schema: z.int().min(0).exactOptional(),
        description: 'only jobs that ended at or before this time, Unix ms',
      },
      {
        name: 'text',
        schema: z.string().max(MAX_SEARCH).exactOptional(),
        description:
          'only jobs with this text in the message of their error, or in their input if it has at most 16 KB; upper and lower case are the same. A page then examines at most about 2,000 jobs',
      },
      {
        name: 'cursor',
        schema: z.string().exactOptional(),
        description: '`cursor` of an earlier answer; without it the first page',
      },
      {
        name: 'limit',
        schema: z.int().min(FAILED_LIMIT.min).max(FAILED_LIMIT.max).default(FAILED_LIMIT.default),
        description: 'jobs in one page, at most',
      },
    ],
    answers: answerJson(failedJobList, 'One page.', {
      jobs: [
        {
          id: '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d73',
          status: 'FAILED',
          attempt: 3,
          submittedAt: 1_768_469_400_000,
          delayTime: 12,
          executionTime: 1_840,
          workerId: 'gpu-1',
          endedAt: 1_768_469_401_852,
          endpoint: { id: 'ep_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d71', name: 'echo' },
          error: { code: 'handler_error', message: 'no such model' },
          inputPreview: '{"model":"x"}',
          inputBytes: 13,
        },
      ],
      unreachable: [],
      cursor: 'MTc2ODQ2OTQwMDAwMDAwMA',
    }),
    refusals: [403, 404, 409],
  },
  getEndpointActivity: {
    summary: 'Show the activity of one endpoint',
    description: 'The same data as in the overview.',
    answers: answerJson(endpointOverview, 'The endpoint.', OVERVIEW_EXAMPLE),
  },
  getEndpointSeries: {
    summary: 'Show what happened at an endpoint, as a time series',
    description: `The platform keeps minutes for 7 days. A series has at most ${MAX_POINTS} points.`,
    query: [
      { name: 'from', schema: time, description: 'Unix ms; default: an hour before `to`' },
      { name: 'to', schema: time, description: 'Unix ms; default: now' },
      {
        name: 'step',
        schema: z.int().min(MIN_STEP_MS).exactOptional(),
        description:
          'ms, a multiple of 60,000; default: the shortest of 1, 5, 15 and 60 minutes that gives 360 points at most',
      },
    ],
    answers: answerJson(endpointSeries, 'The series.', {
      from: 1_768_469_400_000,
      to: 1_768_469_460_000,
      step: 60_000,
      points: [
        {
          at: 1_768_469_400_000,
          submitted: 60,
          completed: 59,
          failed: 1,
          timedOut: 0,
          cancelled: 0,
          retried: 2,
          refused: 0,
          queued: 3,
          running: 2,
          oldestWaitMs: 800,
          waitMs: { p50: 20, p95: 640 },
          executionMs: { p50: 900, p95: 1_800 },
          workers: { ...NO_WORKERS, running: 2 },
          workerSeconds: 120,
          cost: 0.12,
        },
      ],
    }),
  },
});
