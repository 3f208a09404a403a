// The records of flows that clients read.
import { z } from 'zod';
import { pageCursor } from '../operations/operation.ts';
import { PARENT_ENDS, PARENT_POLICIES } from './job.ts';

/**
 * What a job of a flow does, or how it has ended. `WAITING`: it is IN_QUEUE, and a parent has not ended. Otherwise its
 * status; `SKIPPED` and `REMOVED` as for parents.
 */
export const FLOW_JOB_STATES = ['WAITING', 'IN_QUEUE', 'IN_PROGRESS', ...PARENT_ENDS] as const;

/** `FAILED`: it has ended, and a job has not succeeded. Skipped jobs are no failures. */
export const FLOW_STATUSES = ['RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED'] as const;
export type FlowStatus = (typeof FLOW_STATUSES)[number];

const count = z.int().min(0);

const flowJob = z.object({
  name: z.string(),
  endpoint: z.string(),
  id: z.string(),
  state: z
    .enum(FLOW_JOB_STATES)
    .describe(
      '`WAITING`: a parent has not ended. `SKIPPED`: CANCELLED because of a parent. `REMOVED`: removed before its end',
    ),
  after: z
    .array(
      z.object({
        job: z.string(),
        onFailure: z.enum(PARENT_POLICIES),
        as: z.string().exactOptional(),
      }),
    )
    .describe('Its parents'),
});
export type FlowJob = z.infer<typeof flowJob>;

export const flowSummary = z.object({
  id: z.string(),
  status: z
    .enum(FLOW_STATUSES)
    .describe(
      '`RUNNING` until all jobs have ended. Then `FAILED` if one is FAILED, TIMED_OUT or REMOVED, else `CANCELLED` if one is CANCELLED, else `COMPLETED`',
    ),
  createdAt: z.int().describe('Unix ms'),
  endedAt: z.int().nullable().describe('Unix ms'),
  total: count,
  counts: z
    .object({
      open: count.describe('Jobs that have not ended'),
      completed: count,
      failed: count,
      timedOut: count,
      cancelled: count,
      skipped: count,
      removed: count,
    })
    .describe('Jobs by how they have ended'),
});
export type FlowSummary = z.infer<typeof flowSummary>;

export const flowRecord = flowSummary.extend({
  jobs: z.array(flowJob).describe('Parents before their children'),
});
export type FlowRecord = z.infer<typeof flowRecord>;

export const flowReference = z.object({
  id: z.string(),
  jobs: z
    .array(z.object({ name: z.string(), endpoint: z.string(), id: z.string() }))
    .describe('In the order of the request'),
});
/** A submitted flow and its jobs. */
export type FlowReference = z.infer<typeof flowReference>;

export const flowList = z.object({
  flows: z.array(flowSummary).describe('Newest first'),
  cursor: pageCursor,
});
export type FlowList = z.infer<typeof flowList>;

export const flowChange = z.object({
  changed: count.describe('Number of jobs'),
});
