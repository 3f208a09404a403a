// Schemas of the bill: what pods, endpoints and network volumes cost, by hour and by day.
import { z } from 'zod';
import {
  answerJson,
  describeOperations,
  PAGE_PARAMETERS,
  pageCursor,
} from '../operations/operation.ts';
import { BILLING_ROUTES } from '../routes/routes.ts';

export const BILLED_KINDS = ['pod', 'endpoint', 'volume'] as const;
export type BilledKind = (typeof BILLED_KINDS)[number];
export const BILLING_STEPS = ['hour', 'day'] as const;
export type BillingStep = (typeof BILLING_STEPS)[number];
/** What one record of the answer sums up. */
export const BILLING_GROUPS = ['each', 'resource', 'step'] as const;
export type BillingGroup = (typeof BILLING_GROUPS)[number];

/** Longest range of one request, in steps. */
export const MAX_BILLED_STEPS: Readonly<Record<BillingStep, number>> = { hour: 744, day: 366 };

const usd = z
  .string()
  .regex(/^\d+\.\d{6}$/)
  .describe('USD with six decimals, as text, so that no digit is lost');
const seconds = z.number().min(0);

const amount = {
  seconds: seconds.describe('Time that is billed'),
  gpuSeconds: seconds.describe('The same, times the number of GPUs'),
  busyGpuSeconds: seconds.describe(
    'GPU seconds in which workers of endpoints ran attempts, as the workers report them; 0 for pods and volumes',
  ),
  cost: usd,
};

const billingRecord = z.object({
  at: z.int().nullable().describe('Unix ms of the start of the step; null: the whole range'),
  userId: z.string().nullable().describe('null: several users'),
  kind: z.enum(BILLED_KINDS).nullable().describe('null: all resources together'),
  id: z.string().nullable().describe('ID of the resource; null: all resources together'),
  name: z.string().nullable().describe('null: none is known'),
  ...amount,
});
export type BillingRecord = z.infer<typeof billingRecord>;

export const billingPage = z.object({
  from: z.int().describe('Unix ms'),
  to: z.int(),
  step: z.enum(BILLING_STEPS),
  total: z.object(amount).describe('Of the whole range, not only of this page'),
  records: z.array(billingRecord),
  cursor: pageCursor,
});
export type BillingPage = z.infer<typeof billingPage>;

const time = z.int().min(0).exactOptional();

const EXAMPLE_AMOUNT = {
  seconds: 5_400,
  gpuSeconds: 10_800,
  busyGpuSeconds: 8_640,
  cost: '11.970000',
};

export const BILLING_OPERATIONS = describeOperations('billing', BILLING_ROUTES, {
  getBilling: {
    summary: 'Show what pods, endpoints and network volumes cost',
    description:
      'Of the user of the key. The bill of an endpoint has its workers. The platform keeps hours for 40 days and days for 400 days. ' +
      'Times are in UTC.',
    query: [
      {
        name: 'step',
        schema: z.enum(BILLING_STEPS).default('day'),
        description: `at most ${MAX_BILLED_STEPS.hour} hours or ${MAX_BILLED_STEPS.day} days in one answer`,
      },
      {
        name: 'from',
        schema: time,
        description:
          'Unix ms; default: 24 hours or 30 days before `to`. It is rounded to whole steps',
      },
      { name: 'to', schema: time, description: 'Unix ms; default: now' },
      {
        name: 'group',
        schema: z.enum(BILLING_GROUPS).default('each'),
        description:
          'what one record sums up. `each`: one resource in one step, the newest step first. `resource`: one resource in the ' +
          'whole range, the highest cost first. `step`: all resources in one step',
      },
      {
        name: 'kind',
        schema: z.enum(BILLED_KINDS).exactOptional(),
        description: 'only resources of this kind',
      },
      {
        name: 'id',
        schema: z.string().exactOptional(),
        description: 'only the resource with this ID',
      },
      {
        name: 'userId',
        schema: z.string().exactOptional(),
        description:
          'the bill of this user, or `*` for all users together; for the operator of the platform only',
      },
      ...PAGE_PARAMETERS,
    ],
    answers: answerJson(billingPage, 'One page.', {
      from: 1_768_435_200_000,
      to: 1_768_521_600_000,
      step: 'day',
      total: EXAMPLE_AMOUNT,
      records: [
        {
          at: 1_768_435_200_000,
          userId: 'ada',
          kind: 'endpoint',
          name: 'sdxl',
          id: 'ep_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d71',
          ...EXAMPLE_AMOUNT,
        },
      ],
    }),
  },
});
