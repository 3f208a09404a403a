// Schemas of a schedule, which makes jobs of an endpoint at given times; its operations.
import { z } from 'zod';
import { runRequest } from '../job/job-schemas.ts';
import { answerJson, bodyJson, describeOperations } from '../operations/operation.ts';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES, SCHEDULE_ROUTES } from '../routes/routes.ts';
import { exampleOf } from './field.ts';
import { creationShape, recordShape, storedShape, updateShape } from './field-schemas.ts';
import { SCHEDULE_FIELDS } from './fields.ts';

export const SCHEDULE_LIMITS = {
  /** Input as JSON, bytes: it is written again at each tick. */
  inputBytes: 32_768,
  ofEndpoint: 1_000,
  /** Ticks that a record shows. */
  nextTicks: 5,
  lastTicks: 10,
} as const;

const { policy, webhook } = runRequest.shape;
const input = runRequest.shape.input
  .refine(
    (value) => Buffer.byteLength(JSON.stringify(value ?? null)) <= SCHEDULE_LIMITS.inputBytes,
    `must have at most ${SCHEDULE_LIMITS.inputBytes} bytes as JSON`,
  )
  .describe(
    `Input of each job, at most ${SCHEDULE_LIMITS.inputBytes} bytes of JSON, with numbers of at most 15 digits`,
  );

/** Body of `POST /v1/schedules`. */
export const scheduleCreation = z.strictObject({
  ...creationShape(SCHEDULE_FIELDS),
  input: input.default({}),
  policy: policy.unwrap().default({}).describe('`policy` of each job, as of run'),
  webhook: webhook.nullable().default(null),
});
export type ScheduleCreation = z.infer<typeof scheduleCreation>;

/** Body of `PATCH /v1/schedules/{id}`; omitted members stay unchanged. */
export const scheduleUpdate = z.strictObject({
  ...updateShape(SCHEDULE_FIELDS),
  input: input.exactOptional(),
  policy,
  webhook: webhook.nullable().exactOptional(),
});
export type ScheduleUpdate = z.infer<typeof scheduleUpdate>;

const { at, cron, every, phase, timeZone, until } = creationShape(SCHEDULE_FIELDS);
/** Body of `POST /v1/schedules/preview`. */
export const schedulePreview = z.strictObject({ cron, timeZone, every, phase, at, until });
/** When a schedule has its ticks. */
export type ScheduleTiming = z.infer<typeof schedulePreview>;

/** Why a tick makes no job. */
export const SKIP_REASONS = ['missed', 'overlap', 'queue_full'] as const;
export type SkipReason = (typeof SKIP_REASONS)[number];

const count = z.int().min(0);
const time = z.iso.datetime();

const pastTick = z.object({
  at: time.describe('Time of the tick; of several skipped ones, of the last'),
  jobId: z.string().exactOptional().describe('Its job, which may be removed by now'),
  skipped: z.enum(SKIP_REASONS).exactOptional().describe('Why it made no job'),
  count: count.exactOptional().describe('Of skipped ticks: how many, if more than one'),
  triggered: z.literal(true).exactOptional().describe('A call of `trigger` made the job'),
});
export type PastTick = z.infer<typeof pastTick>;

const counts = {
  jobs: count.describe('Jobs that it has made, without triggered ones'),
  skipped: z
    .object({ missed: count, overlap: count, queue_full: count })
    .describe(
      'Ticks without a job, by reason. `missed`: the platform was away, see `catchUp`; of a cron expression, about 1000 of one absence count. ' +
        '`overlap`: an earlier job had not ended. `queue_full`: the endpoint had `maxQueued` jobs',
    ),
  lastTicks: z.array(pastTick).describe('The last 10, the newest first'),
};

/** As the store of the endpoint's jobs keeps it. */
export const storedSchedule = z.object({
  id: z.string(),
  userId: z.string(),
  createdAt: time,
  ...storedShape(SCHEDULE_FIELDS),
  input: z.record(z.string(), z.unknown()),
  policy: policy.unwrap(),
  webhook: z.string().nullable(),
  /** Time of the next tick, Unix ms; null: the schedule is paused, or it has ended. */
  nextAt: z.number().nullable(),
  /** Grows with each change. */
  revision: count,
  /** The last jobs that may not have ended. */
  openJobs: z.array(z.string()),
  ...counts,
});
export type StoredSchedule = z.infer<typeof storedSchedule>;

const shown = recordShape(SCHEDULE_FIELDS);
export const scheduleRecord = z.object({
  id: z.string(),
  ...shown,
  endpointId: shown.endpointId.describe('ID of the endpoint'),
  endpointName: z.string().describe('Name that the endpoint has now'),
  input: z.custom<object>().meta({ type: 'object', additionalProperties: true }),
  policy: policy.unwrap(),
  webhook: z.string().nullable(),
  status: z.enum(['active', 'paused', 'ended']).describe('`ended`: no tick comes any more'),
  nextTicks: z.array(time).describe('Times of the next 5 ticks, the first of them first'),
  ...counts,
  createdAt: time,
});
export type ScheduleRecord = z.infer<typeof scheduleRecord>;

export const nextTicks = z.object({ nextTicks: scheduleRecord.shape.nextTicks });

const TICKS = [
  '2026-01-16T01:30:00.000Z',
  '2026-01-17T01:30:00.000Z',
  '2026-01-18T01:30:00.000Z',
  '2026-01-19T01:30:00.000Z',
  '2026-01-20T01:30:00.000Z',
];

const EXAMPLE: ScheduleRecord = {
  id: 'sch_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d77',
  ...exampleOf(SCHEDULE_FIELDS),
  name: 'nightly',
  at: null,
  endpointName: 'echo',
  input: { report: 'daily' },
  policy: { priority: 1 },
  webhook: null,
  status: 'active',
  nextTicks: TICKS,
  jobs: 3,
  skipped: { missed: 0, overlap: 1, queue_full: 0 },
  lastTicks: [{ at: '2026-01-15T01:30:00.000Z', jobId: '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76' }],
  createdAt: '2026-01-12T09:30:00.000Z',
};

export const schedules = describeResource({
  outline: RESOURCES.schedules,
  about: 'Make jobs of an endpoint at given times.',
  record: scheduleRecord,
  creation: scheduleCreation,
  update: scheduleUpdate,
  texts: {
    create: {
      summary: 'Create a schedule: a cron expression in a time zone, an interval, or one time',
      description: `Each tick makes exactly one job, or counts as skipped. An endpoint may have ${SCHEDULE_LIMITS.ofEndpoint} schedules.`,
    },
    update: {
      summary: 'Update, pause or resume a schedule; omitted fields keep their value',
      description:
        'If the time of a tick changes, and after a pause, the next tick is the first one from now on.',
    },
    delete: { summary: 'Delete a schedule; its jobs stay' },
  },
  refusals: [503],
  examples: {
    record: EXAMPLE,
    creation: {
      name: 'nightly',
      endpointId: 'echo',
      cron: '30 2 * * *',
      timeZone: 'Europe/Berlin',
      input: { report: 'daily' },
    },
    update: { paused: true },
  },
});

export const SCHEDULE_OPERATIONS = describeOperations('schedules', SCHEDULE_ROUTES, {
  triggerSchedule: {
    summary: 'Make a job of a schedule now',
    description:
      'Also of a paused schedule, and whatever `overlap` says. The ticks of the schedule stay as they are.',
    refusals: [409, 503],
    answers: answerJson(z.object({ jobId: z.string() }), 'The job is on disk.', {
      jobId: '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76',
    }),
  },
  previewSchedule: {
    summary: 'Show the next ticks that a schedule would have, and create none',
    body: bodyJson(schedulePreview, {
      ...{ cron: '30 2 * * *', timeZone: 'Europe/Berlin' },
      ...{ every: null, phase: 0, at: null, until: null },
    }),
    answers: answerJson(nextTicks, 'The next ticks.', { nextTicks: TICKS }),
  },
});
