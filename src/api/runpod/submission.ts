// Reads the body of run and runsync from clients of RunPod's API. Members without a meaning here
// (such as `webhookV2`) are ignored, as that API does.
import { z } from 'zod';
import type { Submission } from '../../queue/admission.ts';
import { type JobPolicy, MAX_S3_CONFIG_LENGTH } from '../../wire/job/job.ts';
import { executionTimeoutMs, ttlMs, webhook } from '../../wire/job/job-schemas.ts';
import { readWithInput, type SubmissionBounds } from '../body/body.ts';
import { RUNPOD_FORMAT } from './runpod-records.ts';

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
