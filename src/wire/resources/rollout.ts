// Schemas of the deployment of a handler's version to an endpoint.
import { z } from 'zod';

/** `CHECKING`: one worker has to load the version. `ROLLING`: the others are being replaced. */
export const ROLLOUT_STATES = ['CHECKING', 'ROLLING', 'DONE', 'FAILED'] as const;

/** The last deployment of a version. */
export const rollout = z.object({
  version: z.int().min(1),
  from: z.int().nullable().describe('Version that ran before; null: none, or the template'),
  state: z
    .enum(ROLLOUT_STATES)
    .describe(
      '`CHECKING`: one worker has to load the version; `ROLLING`: the other workers are being replaced; ' +
        '`FAILED`: the version did not load, or its workers crashed while the others were being replaced; the earlier ' +
        'version keeps running',
    ),
  reason: z
    .string()
    .nullable()
    .describe("Why it failed, with the worker's last output, or what it waits for"),
  workersReady: z.int().describe('Workers that run the version and have connected'),
  workersTotal: z.int().describe('All workers, also those of earlier versions'),
  startedAt: z.iso.datetime(),
  endedAt: z.iso.datetime().nullable(),
});
export type Rollout = z.infer<typeof rollout>;

export const storedRollout = z.strictObject({
  ...rollout.shape,
  /** When the check worker must have connected, Unix ms. */
  checkUntil: z.number(),
  /** What the workers ran before. */
  fromSource: z.enum(['TEMPLATE', 'VERSION']),
});
export type StoredRollout = z.infer<typeof storedRollout>;
