// Schemas of pausing and resuming an endpoint or one of its groups.
import { z } from 'zod';
import { jobGroupOrNone } from '../job/job-schemas.ts';
import { NO_CONTROL_CHARACTERS, wellFormedText } from './field-schemas.ts';

const MAX_REASON = 500;

const group = jobGroupOrNone
  .describe(
    'Only the jobs of this `policy.group`; empty: those without a group. Default: all jobs of the endpoint',
  )
  .exactOptional();

/** Body of `POST /v2/<endpoint>/pause`. */
export const pauseRequest = z.strictObject({
  group,
  until: z
    .int()
    .min(0)
    .max(8_640_000_000_000_000)
    .describe('When the pause ends by itself, Unix ms. Default: it lasts until it is resumed')
    .exactOptional(),
  reason: wellFormedText
    .min(1)
    .max(MAX_REASON)
    .regex(NO_CONTROL_CHARACTERS, 'must not have control characters')
    .describe('For people: jobs that wait show it')
    .exactOptional(),
});
export type PauseRequest = z.infer<typeof pauseRequest>;

/** Body of `POST /v2/<endpoint>/resume`. */
export const resumeRequest = z.strictObject({ group });

export const pause = z.object({
  group: z
    .string()
    .nullable()
    .describe('null: the whole endpoint; empty: the jobs without a group'),
  since: z.int().describe('Unix ms'),
  until: z.int().nullable().describe('When it ends by itself, Unix ms; null: when it is resumed'),
  reason: z.string().nullable(),
});
/** Holds jobs back. */
export type Pause = z.infer<typeof pause>;

export const pauseList = z.object({
  pauses: z.array(pause).describe('That of the endpoint first'),
});
export type PauseList = z.infer<typeof pauseList>;
