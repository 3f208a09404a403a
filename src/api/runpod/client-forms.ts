// The forms of RunPod's API for its clients: bodies of run and runsync, job records, and errors. Members of a body
// without a meaning here (such as webhookV2) are ignored, as that API does.
import { z } from 'zod';
import type { Submission } from '../../queue/admission.ts';
import { addMembers, type ComposeRecord, describeJob, progressOf } from '../../queue/records.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import { type JobPolicy, MAX_S3_CONFIG_LENGTH } from '../../wire/job/job.ts';
import { executionTimeoutMs, ttlMs, webhook } from '../../wire/job/job-schemas.ts';
import type { ProblemCode } from '../../wire/problem.ts';
import { readWithInput, type SubmissionBounds } from '../body/body.ts';
import { JSON_MEDIA_TYPE } from '../http/byte-reply.ts';
import type { ErrorForm } from '../http/problem-reply.ts';

/** Low priority: below everything that clients of either API can request. */
const LOW_PRIORITY = -1;

/** Typed clients send members without a value as null or as an empty text. */
const emptyAsNone = (value: unknown) => (value === null || value === '' ? undefined : value);
const optional = <S extends z.ZodType>(schema: S) => z.preprocess(emptyAsNone, schema.optional());

const s3Config = z
  .object({
    accessId: optional(z.string()),
    accessSecret: optional(z.string()),
    bucketName: optional(z.string()),
    endpointUrl: optional(z.string()),
    objectPath: optional(z.string()),
  })
  .refine(
    (value) => JSON.stringify(value).length <= MAX_S3_CONFIG_LENGTH,
    `must be at most ${MAX_S3_CONFIG_LENGTH} characters of JSON`,
  );

const request = z.object({
  input: z.custom((value) => value !== undefined, 'is missing'),
  policy: optional(
    z.object({
      executionTimeout: optional(executionTimeoutMs),
      ttl: optional(ttlMs),
      lowPriority: optional(z.boolean()),
    }),
  ),
  webhook: optional(webhook),
  s3Config: optional(s3Config),
});

export interface RunpodSubmission {
  /** JSON bytes of any type. */
  input: Uint8Array;
  policy: JobPolicy;
  webhook: string | undefined;
  attachment: Submission['attachment'];
}

/** @throws ProblemError `malformed`, `payload_too_large`, `invalid` */
export async function readRunpodSubmission(
  body: Buffer,
  bounds: SubmissionBounds,
): Promise<RunpodSubmission> {
  const { input, request: found } = await readWithInput(body, request, bounds);
  const { executionTimeout, lowPriority, ttl } = found.policy ?? {};
  return {
    input,
    policy: {
      ...(executionTimeout !== undefined && { executionTimeout }),
      ...(ttl !== undefined && { ttl }),
      ...(lowPriority && { priority: LOW_PRIORITY }),
    },
    webhook: found.webhook,
    attachment: {
      format: RUNPOD_FORMAT,
      handlerData: found.s3Config ? JSON.stringify(found.s3Config) : null,
    },
  };
}

/** Name of the format in job attachments. */
export const RUNPOD_FORMAT = 'runpod';

/** The error is a text. While the job runs, its progress replaces the output. */
export const composeRunpodRecord: ComposeRecord = <Output>(
  ...[job, now, output]: Parameters<typeof describeJob<Output>>
) => {
  const head = describeJob(job, now, output);
  if (job.error) head['error'] = encodeError(job.error, job.workerId);
  const shown = output ?? progressOf(job);
  return addMembers<Output | Uint8Array>(head, shown ? { output: shown } : {});
};

/**
 * For thrown errors: JSON with the member names of RunPod's Python workers, which clients parse.
 * Every other error is its message, and so is an error that arrived as text.
 */
function encodeError({ code, message, stack, type }: AttemptError, workerId: string | null) {
  if (type === undefined && stack === undefined) return message;
  return JSON.stringify({
    error_type: type ?? code,
    error_message: message,
    error_traceback: stack ?? '',
    error_code: code,
    worker_id: workerId,
  });
}

/** Codes for which this API has no status of its own. Other codes keep theirs. */
const STATUSES: Partial<Record<ProblemCode, number>> = {
  conflict: 400,
  invalid: 400,
};

/** JSON with one text, and the few statuses of that API. */
export const RUNPOD_ERRORS: ErrorForm = {
  mediaType: JSON_MEDIA_TYPE,
  status: ({ code, status }) => STATUSES[code] ?? status,
  body: ({ message }) => ({ error: message }),
};
