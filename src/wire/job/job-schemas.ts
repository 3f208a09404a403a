// Validates the requests of job.ts. Only the platform loads this file: zod is kept out of workers.
import { z } from 'zod';
import { NO_CONTROL_CHARACTERS, wellFormedText } from '../resources/field-schemas.ts';
import { isWebhookUrl, MAX_WEBHOOK_CHARACTERS } from '../webhook.ts';
import {
  ERROR_CODES,
  type FlowJobRequest,
  type FlowRequest,
  JOB_CHANGES,
  JOB_STATUSES,
  type JobPolicy,
  LIMITS,
  MAX_FAILED_IDS,
  PARENT_POLICIES,
  type ParentReference,
  type RunJobsRequest,
  type RunRequest,
} from './job.ts';
import type { Wait } from './memo.ts';
import { jobRetry } from './retry-schemas.ts';

export const executionTimeoutMs = z
  .int()
  .min(LIMITS.executionTimeoutMs.min)
  .max(LIMITS.executionTimeoutMs.max);
export const ttlMs = z.int().min(LIMITS.ttlMs.min).max(LIMITS.ttlMs.max);

/** Empty for the jobs without a group. Lone surrogates and control characters would not survive a store, a log or a table. */
export const jobGroupOrNone = wellFormedText
  .max(LIMITS.groupCharacters)
  .regex(NO_CONTROL_CHARACTERS, 'must not have control characters');

export const jobGroup = jobGroupOrNone
  .min(1)
  .describe(
    'Group of the job. Within one priority, the groups of an endpoint share the GPU time; jobs without a group form one group together',
  );

/** No character that a text of JSON escapes, and none that separates tags. */
export const jobTag = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_.:/=@+-]{0,63}$/,
    'must be 1 to 64 letters, digits or _ . : / = @ + -, the first one a letter or digit',
  );

const jobTags = z.array(jobTag).max(LIMITS.tagsOfJob, `must have at most ${LIMITS.tagsOfJob} tags`);

export const jobPolicy = z.strictObject({
  executionTimeout: executionTimeoutMs.exactOptional(),
  ttl: ttlMs
    .describe(
      'Time until the platform removes the job, whatever its state, ms; default 86400000 (24 h). It counts from when the job is due: waits for a delay or a retry do not count',
    )
    .exactOptional(),
  priority: z.int().min(0).max(9).exactOptional(),
  delay: z.int().min(LIMITS.delayMs.min).max(LIMITS.delayMs.max).exactOptional(),
  group: jobGroup.exactOptional(),
  tags: jobTags
    .describe('Texts to find the job by, such as `customer-7`; the list of jobs filters by them')
    .exactOptional(),
  retry: jobRetry
    .describe(
      'Whether and when failed attempts are retried. Each member that is left out is that of the handler, else of the endpoint',
    )
    .exactOptional(),
}) satisfies z.ZodType<JobPolicy>;

export const webhook = z
  .string()
  .max(MAX_WEBHOOK_CHARACTERS, { abort: true })
  .refine(isWebhookUrl, 'must be an http or https URL without a user name or password')
  .describe(
    'URL to which the platform posts the final record; must be a public address unless the operator allows others',
  );

/** A part of a job's ID to search for. */
export const JOB_ID_PART = /^[0-9A-Za-z-]{1,64}$/;

const MAX_IDEMPOTENCY_KEY = 255;

/** The header `Idempotency-Key`. Clients encode other characters differently, so only ASCII is allowed. */
export const idempotencyHeader = z
  .string()
  .min(1, 'must not be empty')
  .max(MAX_IDEMPOTENCY_KEY, `must have at most ${MAX_IDEMPOTENCY_KEY} characters`)
  .regex(/^[\x20-\x7e]*$/, 'must be printable ASCII');

/** IDs of jobs have about 40 characters. */
const MAX_ID = 64;
const reference = z.string().min(1).max(MAX_ID);

const MAX_MEMBER = 128;

const edge = {
  as: wellFormedText
    .min(1)
    .max(MAX_MEMBER)
    .regex(NO_CONTROL_CHARACTERS, 'must not have control characters')
    .refine((name) => name !== '__proto__', 'must not be __proto__')
    .describe(
      'Member of the input that gets the output of the parent, in place of one of that name; null if the parent has not COMPLETED',
    )
    .exactOptional(),
  onFailure: z
    .enum(PARENT_POLICIES)
    .describe(
      'If the parent ends without COMPLETED: `fail` makes the job FAILED with `parent_failed`, `run` lets it run nevertheless, `skip` makes it CANCELLED, and with it its own children unless theirs is `run`; default `fail`',
    )
    .exactOptional(),
};

const parentReference = z.strictObject({
  id: reference.describe('ID of the parent'),
  endpoint: reference.describe('Endpoint of the parent; default: that of the job').exactOptional(),
  ...edge,
}) satisfies z.ZodType<ParentReference>;

const after = z
  .array(z.union([reference, parentReference]))
  .max(LIMITS.parentsOfJob, `must have at most ${LIMITS.parentsOfJob} parents`)
  .describe(
    'Jobs that must end before this one starts, each an ID or an object. `delay` and `ttl` of the policy count from the end of the last one',
  );

export const runRequest = z.strictObject({
  input: z
    .custom<object>(
      (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
      'must be an object',
    )
    .meta({
      type: 'object',
      // Without this, some client generators create a type without members.
      additionalProperties: true,
      description:
        'Input of the handler; nested at most 1000 levels deep unless the operator sets another limit',
    }),
  policy: jobPolicy.exactOptional(),
  webhook: webhook.exactOptional(),
  idempotencyKey: wellFormedText.min(1).max(MAX_IDEMPOTENCY_KEY).exactOptional(),
  after: after.exactOptional(),
}) satisfies z.ZodType<RunRequest>;

const time = z.int().min(0);

/** What a job must have, by the names of the parameters of the list of jobs. */
const jobFilters = z.strictObject({
  status: z.enum(JOB_STATUSES).describe('A status that allows the change').exactOptional(),
  tags: jobTags.exactOptional(),
  errorCode: z.enum(ERROR_CODES).exactOptional(),
  since: time.exactOptional(),
  until: time.exactOptional(),
  workerId: z.string().min(1).max(255).exactOptional(),
  id: z.string().regex(JOB_ID_PART).exactOptional(),
});

export const changeRequest = z.strictObject({
  change: z.enum(JOB_CHANGES),
  filter: jobFilters.describe('As of the list of jobs; `{}`: all jobs that allow the change'),
  dryRun: z.boolean().describe('Only count the jobs').exactOptional(),
  asOf: time
    .describe(
      'Unix ms; only jobs that were submitted by then and, for `retry` and `delete`, have ended by then; default: now. Send that of the ' +
        'first answer with the following requests, so that a repeated request does not retry a job twice',
    )
    .exactOptional(),
  cursor: z
    .string()
    .max(64)
    .describe('`cursor` of an earlier answer to the same change')
    .exactOptional(),
});

/** IDs of failed jobs. */
export const failedJobsRequest = z.strictObject({
  ids: z
    .array(z.string().min(1).max(128))
    .min(1)
    .max(MAX_FAILED_IDS)
    .describe('IDs of FAILED and TIMED_OUT jobs of the endpoint'),
});

export const runJobsRequest = z.strictObject({
  jobs: z
    .array(runRequest, 'must be an array of jobs')
    .min(1, 'must have at least 1 job')
    .max(LIMITS.jobsOfRequest, `must have at most ${LIMITS.jobsOfRequest} jobs`)
    .describe('Each is the body of one `run`'),
}) satisfies z.ZodType<RunJobsRequest>;

/** The names of a flow's jobs appear in logs, paths and tables. */
export const flowJobName = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
    'must be 1 to 64 letters, digits, dots, _ or -, the first one a letter or digit',
  )
  .describe('Name of the job, unique in the flow');

const flowEdge = z.strictObject({ job: z.string().describe('Name of the parent'), ...edge });

const { idempotencyKey: _, ...ofFlowJob } = runRequest.shape;

export const flowJobRequest = z.strictObject({
  ...ofFlowJob,
  name: flowJobName,
  endpoint: reference
    .describe('ID or name of the endpoint; default: the one in the path')
    .exactOptional(),
  after: z
    .array(z.union([z.string(), flowEdge]))
    .max(LIMITS.parentsOfJob, `must have at most ${LIMITS.parentsOfJob} parents`)
    .describe(
      'Jobs of the flow that must end before this one starts, each a name or an object. `delay` and `ttl` of the policy count from the end of the last one',
    )
    .exactOptional(),
}) satisfies z.ZodType<FlowJobRequest>;

export const flowRequest = z.strictObject({
  jobs: z
    .array(flowJobRequest, 'must be an array of jobs')
    .min(1, 'must have at least 1 job')
    .max(LIMITS.jobsOfFlow, `must have at most ${LIMITS.jobsOfFlow} jobs`)
    .describe(`In any order; with at most ${LIMITS.edgesOfFlow} edges`),
  idempotencyKey: wellFormedText.min(1).max(MAX_IDEMPOTENCY_KEY).exactOptional(),
}) satisfies z.ZodType<FlowRequest>;

const stepNames = wellFormedText.min(1).max(LIMITS.stepNameCharacters);
const longestWait = LIMITS.parentWaitMs;

/** What an attempt that ends as waiting waits for: the body of its outcome. */
export const waitList = z
  .array(
    z.union([
      z.strictObject({
        kind: z.literal('child'),
        name: stepNames,
        digest: z.string().max(64),
        endpoint: reference.exactOptional(),
        input: runRequest.shape.input,
        policy: jobPolicy.exactOptional(),
      }),
      z.strictObject({
        kind: z.literal('sleep'),
        name: stepNames,
        forMs: z.int().min(0).max(longestWait),
      }),
      z.strictObject({ kind: z.literal('sleep'), name: stepNames, until: time }),
    ]),
  )
  .min(1)
  .max(LIMITS.stepsOfJob) satisfies z.ZodType<Wait[]>;

export const flowSelection = z.strictObject({
  jobs: z
    .array(z.string())
    .min(1)
    .max(LIMITS.jobsOfFlow)
    .describe('Names of jobs; default: all')
    .exactOptional(),
});
