// Schemas of what a user may use, and uses now: calls in windows of time, and quotas.
import { z } from 'zod';
import { answerJson, describeOperations } from '../operations/operation.ts';
import { LIMITS_ROUTES } from '../routes/routes.ts';

/** What a quota counts for. */
export const QUOTA_SCOPES = ['user', 'endpoint', 'record'] as const;
export type QuotaScope = (typeof QUOTA_SCOPES)[number];

const rate = z.object({
  window: z.enum(['minute', 'hour', 'day']),
  limit: z.int().min(0).describe('Calls'),
  used: z.int().min(0).describe('Calls, this one included'),
  endsAt: z.int().describe('Unix ms; the first call after it starts the next window'),
});

const quota = z.object({
  name: z.string().describe('As in `serve --quota`'),
  of: z
    .enum(QUOTA_SCOPES)
    .describe('`user`: all of the user together. `endpoint`, `record`: each one by itself'),
  limit: z.number().min(0),
  used: z.number().min(0).nullable().describe('null for a quota that is not of the user'),
});

/** Names of quotas and counts of their use, as nodes tell each other. */
export const useCounts = z.record(z.string(), z.number().min(0));
export type UseCounts = z.infer<typeof useCounts>;

export const limitsRecord = z.object({
  at: z.int().describe('Unix ms'),
  userId: z.string(),
  rates: z.array(rate).describe('Empty if the platform does not limit calls'),
  quotas: z.array(quota),
});
export type LimitsRecord = z.infer<typeof limitsRecord>;

export const LIMITS_OPERATIONS = describeOperations('keys', LIMITS_ROUTES, {
  getLimits: {
    summary: 'Show what the user of the key may use, and uses now',
    description:
      'The operator sets rates with `serve --rate-limit` and quotas with `serve --quota`.',
    refusals: [503],
    answers: answerJson(limitsRecord, 'Rates and quotas.', {
      at: 1_768_469_412_000,
      userId: 'ada',
      rates: [{ window: 'minute', limit: 6_000, used: 12, endsAt: 1_768_469_460_000 }],
      quotas: [
        { name: 'endpoints', of: 'user', limit: 100, used: 3 },
        { name: 'workersMax', of: 'endpoint', limit: 100, used: null },
      ],
    }),
  },
});
