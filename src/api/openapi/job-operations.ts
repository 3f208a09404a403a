// The job operations of an endpoint, for the OpenAPI document.
import { z } from 'zod';
import {
  chunkPage,
  endpointHealth,
  jobList,
  jobRecord,
  jobReference,
  purgeAnswer,
} from '../../wire/answers.ts';
import { JOB_STATUSES, LIMITS } from '../../wire/job.ts';
import { idempotencyHeader, runRequest } from '../../wire/job-schemas.ts';
import { routes } from '../../wire/routes.ts';
import { answerJson, JSON_TYPE, type Operation, PAGE_PARAMETERS } from './operation.ts';

const { streamWaitMs, ttlMs, waitMs } = LIMITS;
const reading = { tag: 'jobs', method: 'GET', access: 'jobs:read' } as const;
const writing = { tag: 'jobs', method: 'POST', access: 'jobs:write' } as const;

const IDEMPOTENCY_KEY = {
  name: 'Idempotency-Key',
  schema: idempotencyHeader.exactOptional(),
  description:
    'same as `idempotencyKey` in the body: the same key with the same body returns the first job while it is kept',
};

export const JOB_OPERATIONS: readonly Operation[] = [
  {
    ...writing,
    id: 'runJob',
    path: routes.run(':endpoint'),
    summary: 'Queue a job',
    description: `At most ${LIMITS.runBodyBytes} bytes. Kept ${LIMITS.retentionMs.run / 60_000} minutes after its end.`,
    headers: [IDEMPOTENCY_KEY],
    body: { schema: runRequest },
    answers: answerJson(jobReference, 'The job is on disk.'),
    refusals: [409],
  },
  {
    ...writing,
    id: 'runJobSync',
    path: routes.runsync(':endpoint'),
    summary: 'Queue a job and wait for its end',
    description: `At most ${LIMITS.runsyncBodyBytes} bytes. When the wait is over first, the record tells how far the job is.`,
    query: [
      {
        name: 'wait',
        schema: z.int().min(waitMs.min).max(waitMs.max).default(waitMs.default),
        description: 'ms to wait, at most',
      },
    ],
    headers: [IDEMPOTENCY_KEY],
    body: { schema: runRequest },
    answers: answerJson(jobRecord, 'The record of the job.'),
    refusals: [409],
  },
  {
    ...reading,
    id: 'getJobStatus',
    path: routes.status(':endpoint', ':job'),
    summary: 'Show one job',
    query: [
      {
        name: 'ttl',
        schema: z.int().min(ttlMs.min).max(ttlMs.max).exactOptional(),
        description: 'ms from now after which the job is removed; wants `jobs:write` too',
      },
    ],
    answers: answerJson(jobRecord, 'The record of the job.'),
  },
  streamOperation(),
  {
    ...writing,
    id: 'cancelJob',
    path: routes.cancel(':endpoint', ':job'),
    summary: 'Cancel a queued or running job',
    answers: answerJson(jobReference, 'The job is CANCELLED, or was already.'),
    refusals: [409],
  },
  {
    ...writing,
    id: 'retryJob',
    path: routes.retry(':endpoint', ':job'),
    summary: 'Queue a FAILED or TIMED_OUT job again',
    answers: answerJson(jobReference, 'The job is queued.'),
    refusals: [409],
  },
  {
    ...writing,
    id: 'purgeQueue',
    path: routes.purgeQueue(':endpoint'),
    summary: 'Cancel all queued jobs',
    answers: answerJson(purgeAnswer, 'Number of cancelled jobs.'),
  },
  {
    ...reading,
    id: 'getEndpointHealth',
    path: routes.health(':endpoint'),
    summary: 'Count jobs and workers',
    answers: answerJson(endpointHealth, 'Counts.'),
  },
  {
    ...reading,
    id: 'listJobs',
    path: routes.jobs(':endpoint'),
    summary: 'List jobs, newest first',
    query: [
      {
        name: 'status',
        schema: z.enum(JOB_STATUSES).exactOptional(),
        description: 'only jobs of this status',
      },
      ...PAGE_PARAMETERS,
    ],
    answers: answerJson(jobList, 'One page.'),
  },
  {
    ...reading,
    id: 'getJobLog',
    path: routes.logs(':endpoint', ':job'),
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
        description: 'Lines of JSON. The last one may tell how many were left out.',
        content: { 'application/x-ndjson': z.string() },
        headers: ['Millrace-Next', 'Millrace-Status'],
      },
    },
  },
];

function streamOperation(): Operation {
  return {
    ...reading,
    id: 'streamJob',
    path: routes.stream(':endpoint', ':job'),
    summary: 'Stream the chunks of a job',
    description:
      'Without `after` each call goes on where the one before ended. It is over when an answer is empty ' +
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
        content: { [JSON_TYPE]: chunkPage, 'text/event-stream': z.string() },
        headers: ['Millrace-Next', 'Millrace-Status', 'Millrace-Reset'],
      },
    },
  };
}
