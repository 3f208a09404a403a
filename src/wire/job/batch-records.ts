// The records of batches that clients read.
import { z } from 'zod';
import { pageCursor } from '../operations/operation.ts';
import { BATCH_STATES } from './batch.ts';

const count = z.int().min(0);
const time = z.int().describe('Unix ms');

export const batchRecord = z.object({
  id: z.string(),
  state: z
    .enum(BATCH_STATES)
    .describe(
      '`cancelling` and `expiring`: its jobs are being cancelled, and its other lines given up',
    ),
  total: count.describe('Lines of the input'),
  completed: count.describe('Lines of the results'),
  failed: count.describe('Lines of the failures'),
  live: count.describe('Jobs that wait or run, and those whose result is yet to be written'),
  createdAt: time,
  expiresAt: time,
  endedAt: time.nullable(),
});
export type BatchRecord = z.infer<typeof batchRecord>;

export const batchList = z.object({ batches: z.array(batchRecord), cursor: pageCursor });
export type BatchList = z.infer<typeof batchList>;
