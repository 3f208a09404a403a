// What shards tell each other about their jobs: the edges between them, and the flows that they are of.
import { z } from 'zod';
import type { FlowPlace, JobChild, JobKey, JobLinks } from '../../store/store.ts';
import {
  type JobPolicy,
  PARENT_ENDS,
  PARENT_POLICIES,
  type ParentEnd,
} from '../../wire/job/job.ts';
import { jobPolicy } from '../../wire/job/job-schemas.ts';
import type { TraceContext } from '../../wire/trace-context.ts';

export interface EndedMessage {
  type: 'ended';
  parent: JobKey;
  status: ParentEnd;
  /** Of one shard. */
  children: readonly JobChild[];
}

/** A job of a flow, or a child of a handler, as it is to be added; its links name shards as its own shard sees them. */
export interface JobSpec extends JobKey {
  policy: JobPolicy;
  webhook?: string;
  trace?: TraceContext;
  links: JobLinks;
}

/** A parent of a job that is retried with others of its flow. */
export interface RetriedParent extends JobKey {
  /** Absent: it has not ended. */
  status?: ParentEnd;
  /** Its own retry is under way. */
  isRetried?: true;
}

export type HandoverMessage =
  /** The parent has ended: for its children. */
  | EndedMessage
  /** A job waits for the parent: for the parent. `run`: both are retried by this retry of their flow. */
  | { type: 'child'; parent: JobKey; child: JobChild; run?: number }
  /** The child does not need the output of the parent any more: for the parent. */
  | { type: 'reader_left'; parent: JobKey; child: JobKey }
  /** A job of a flow is to be added. `input`: base64; its record is apart from that of the message. */
  | { type: 'flow_job'; flow: JobKey; job: JobSpec; inputBytes: number; input?: string }
  /** A handler awaits this child, which is to be added unless it exists. `input`: as of a job of a flow. */
  | ChildJobMessage
  /** Nobody awaits these children of a handler any more. */
  | { type: 'child_cancel'; parent: JobKey; jobs: readonly JobKey[] }
  /** A job of the flow cannot be added, because its endpoint is gone: for the flow's record. */
  | { type: 'flow_job_missing'; flow: JobKey; index: number; endpointId: string }
  /** All jobs of the flow have been added: for its first jobs. */
  | { type: 'flow_started'; flow: JobKey; jobs: readonly JobKey[] }
  /** A client cancels jobs of the flow. */
  | { type: 'flow_cancel'; flow: JobKey; jobs: readonly JobKey[]; isWhole: boolean }
  /** A client retries a job of the flow. */
  | {
      type: 'flow_retry';
      flow: FlowPlace & { run: number };
      job: JobKey;
      /** What the flow's record had noted for the job. */
      letter: string;
      parents: readonly RetriedParent[];
    }
  /** Jobs of the flow have ended, or run again: for its record. */
  | {
      type: 'flow_letters';
      flow: JobKey;
      /** Of the jobs. */
      endpointId: string;
      letters: readonly (readonly [index: number, letter: string])[];
    };

export interface ChildJobMessage {
  type: 'child_job';
  /** The job that awaits the child. */
  parent: JobChild;
  /** Owner of both. */
  userId: string;
  job: JobSpec;
  inputBytes: number;
  input?: string;
}

export interface AddressedMessage {
  /** The shard that gets the message. */
  shard: number;
  message: HandoverMessage;
}

/** Children that one message tells. */
export const MAX_TOLD = 128;

const key = z.object({ endpointId: z.string(), id: z.string() });
const child = key.extend({
  shard: z.int().exactOptional(),
  reads: z.literal(true).exactOptional(),
  round: z.int().exactOptional(),
  sibling: z.literal(true).exactOptional(),
});
const parentKey = key.extend({ shard: z.int().exactOptional() });
const place = key.extend({ shard: z.int().exactOptional(), index: z.int() });
const flag = z.literal(true).exactOptional();
const status = z.enum(PARENT_ENDS);

const links: z.ZodType<JobLinks> = z.object({
  parents: z.array(
    parentKey.extend({
      onFailure: z.enum(PARENT_POLICIES),
      as: z.string().exactOptional(),
      ended: status.exactOptional(),
      round: z.int().exactOptional(),
    }),
  ),
  children: z.array(child),
  held: flag,
  delayMs: z.number(),
  depth: z.int().exactOptional(),
  flow: place.exactOptional(),
});

const spec: z.ZodType<JobSpec> = key.extend({
  policy: jobPolicy,
  webhook: z.string().exactOptional(),
  trace: z
    .object({ traceparent: z.string(), tracestate: z.string().exactOptional() })
    .exactOptional(),
  links,
});

export const handoverMessage: z.ZodType<HandoverMessage> = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('ended'),
    parent: key,
    status,
    children: z.array(child).max(MAX_TOLD),
  }),
  z.object({ type: z.literal('child'), parent: key, child, run: z.int().exactOptional() }),
  z.object({ type: z.literal('reader_left'), parent: key, child: key }),
  z.object({
    type: z.literal('flow_job'),
    flow: key,
    job: spec,
    inputBytes: z.int(),
    input: z.string().exactOptional(),
  }),
  z.object({
    type: z.literal('child_job'),
    parent: child,
    userId: z.string(),
    job: spec,
    inputBytes: z.int(),
    input: z.string().exactOptional(),
  }),
  z.object({ type: z.literal('child_cancel'), parent: key, jobs: z.array(key).max(MAX_TOLD) }),
  z.object({
    type: z.literal('flow_job_missing'),
    flow: key,
    index: z.int(),
    endpointId: z.string(),
  }),
  z.object({ type: z.literal('flow_started'), flow: key, jobs: z.array(key).max(MAX_TOLD) }),
  z.object({
    type: z.literal('flow_cancel'),
    flow: key,
    jobs: z.array(key).max(MAX_TOLD),
    isWhole: z.boolean(),
  }),
  z.object({
    type: z.literal('flow_retry'),
    flow: place.extend({ run: z.int() }),
    job: key,
    letter: z.string(),
    parents: z.array(key.extend({ status: status.exactOptional(), isRetried: flag })),
  }),
  z.object({
    type: z.literal('flow_letters'),
    flow: key,
    endpointId: z.string(),
    letters: z.array(z.tuple([z.int(), z.string()])),
  }),
]);

/** How many jobs the message may change. */
export function weigh(message: HandoverMessage): number {
  if (message.type === 'ended') return message.children.length;
  return 'jobs' in message ? message.jobs.length : 1;
}

/** An endpoint of the owner of the message's jobs, of the shard that sends the message. */
export function findSender(message: HandoverMessage): string {
  switch (message.type) {
    case 'ended':
    case 'child_job':
    case 'child_cancel':
      return message.parent.endpointId;
    case 'child':
    case 'reader_left':
      return message.child.endpointId;
    case 'flow_job_missing':
    case 'flow_letters':
      return message.endpointId;
    default:
      return message.flow.endpointId;
  }
}

/** Parts of at most MAX_TOLD. */
export function cut<T>(all: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / MAX_TOLD) }, (_, part) =>
    all.slice(part * MAX_TOLD, (part + 1) * MAX_TOLD),
  );
}
