// Validates the messages of worker-link.ts. Only the platform loads this file: zod costs 8 MB or more,
// too much for every worker process.

import { z } from 'zod';
import { MAX_CHUNK_BYTES } from '../chunk/chunk.ts';
import {
  type AttemptError,
  type AttemptUsage,
  ERROR_CODES,
  MAX_S3_CONFIG_LENGTH,
  STUCK_STATES,
  type StuckPlace,
  VRAM_SCOPES,
} from '../job/job.ts';
import { findSchemaFault, MAX_CHUNKS, MAX_LISTED } from '../message-bounds.ts';
import { MAX_TRACESTATE_LENGTH, TRACEPARENT_LENGTH } from '../trace-context.ts';
import {
  type Device,
  type LeaseHeader,
  type LeaseRef,
  MAX_JOB_ID_LENGTH,
  MAX_TOKEN_LENGTH,
  type Outcome,
  RELEASE_REASONS,
  type RenewReply,
  type RenewRequest,
  type ReportHeader,
  type ReportReply,
  STOP_LEVELS,
  type TakeRequest,
  type WorkerBye,
  type WorkerHello,
  type WorkerIdentity,
  type WorkerWelcome,
} from './worker-link.ts';

export const workerIdentity = z.object({
  workerId: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/),
  incarnation: z.int().min(0),
}) satisfies z.ZodType<WorkerIdentity>;

/**
 * An array of at most 10,000 elements that names only the first invalid element. Describing every
 * error of a million elements, which fit into an allowed message, would take minutes and gigabytes.
 * A list of nothing but common elements is not given to `element`.
 */
function listOf<T>(
  element: z.ZodType<T>,
  maxLength = MAX_LISTED,
  isCommon: (value: unknown) => value is T = isNone,
) {
  return z
    .array(z.unknown())
    .max(maxLength)
    .transform((values, context) => {
      if (values.every(isCommon)) return values;
      const list: T[] = [];
      for (const [index, value] of values.entries()) {
        const checked = element.safeParse(value);
        if (checked.success) {
          list.push(checked.data);
          continue;
        }
        for (const { message, path } of checked.error.issues) {
          context.addIssue({ code: 'custom', message, path: [index, ...path] });
        }
        return z.NEVER;
      }
      return list;
    });
}

function isNone(_value: unknown): _value is never {
  return false;
}

/**
 * Bounded, because the platform keeps a worker's description as long as the worker, and may have
 * thousands.
 */
const MAX_NAME_LENGTH = 200;
const MAX_DEVICES = 256;

const name = z.string().max(MAX_NAME_LENGTH);
const token = z.string().min(1).max(MAX_TOKEN_LENGTH);
const jobId = z.string().min(1).max(MAX_JOB_ID_LENGTH);
const attempt = z.int().min(1);
const waitMs = z.int().min(0).max(60_000);
const traceparent = z.string().min(1).max(TRACEPARENT_LENGTH);

const leaseRef = z.object({ jobId, attempt, token }) satisfies z.ZodType<LeaseRef>;

const device = z.object({
  kind: z.enum(['cpu', 'gpu']),
  index: z.int().min(0),
  uuid: name,
  name,
  memoryBytes: z.int().min(0),
  gpuTypeId: name.exactOptional(),
}) satisfies z.ZodType<Device>;

const inputSchema = z.string().superRefine((text, context) => {
  const fault = text === '' ? undefined : findSchemaFault(text);
  if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
});

export const workerHello = z.object({
  ...workerIdentity.shape,
  protocol: z.int(),
  version: name,
  slots: z.int().min(1),
  devices: listOf(device, MAX_DEVICES),
  outbox: listOf(leaseRef, MAX_LISTED, isLeaseRef),
  requires: listOf(z.string().max(64)).exactOptional(),
  inputSchema: inputSchema.exactOptional(),
  handlerVersion: z.int().min(1).exactOptional(),
}) satisfies z.ZodType<WorkerHello>;

export const workerWelcome = z.object({
  protocol: z.int(),
  capabilities: z.array(z.string()).exactOptional(),
  leaseMs: z.number(),
  renewEveryMs: z.number(),
  takeWaitMs: z.number(),
  reportsBy: z.enum(['worker', 'attempt']).exactOptional(),
  takesBack: z.boolean().exactOptional(),
  replacesWorkers: z.boolean().exactOptional(),
}) satisfies z.ZodType<WorkerWelcome>;

export const takeRequest = z.object({
  ...workerIdentity.shape,
  takeId: token,
  seq: z.int().min(1).exactOptional(),
  max: z.int().min(1).max(1_000),
  waitMs,
  held: listOf(token, MAX_LISTED, isToken),
}) satisfies z.ZodType<TakeRequest>;

export const leaseHeader = z.object({
  ...leaseRef.shape,
  executionTimeoutMs: z.number(),
  solo: z.boolean(),
  submittedAt: z.number(),
  traceparent: traceparent.exactOptional(),
  tracestate: z.string().min(1).max(MAX_TRACESTATE_LENGTH).exactOptional(),
  s3Config: z.string().min(1).max(MAX_S3_CONFIG_LENGTH).exactOptional(),
}) satisfies z.ZodType<LeaseHeader>;

export const renewRequest = z.object({
  ...workerIdentity.shape,
  waitMs,
  leases: listOf(
    z.object({ jobId, token, stopping: z.boolean(), delivering: z.boolean().exactOptional() }),
    MAX_LISTED,
    isRenewedLease,
  ),
}) satisfies z.ZodType<RenewRequest>;

export const renewReply = z.object({
  ended: z.array(z.object({ jobId, token, verdict: z.enum(['cancelled', 'lost']) })),
  drain: z.boolean(),
}) satisfies z.ZodType<RenewReply>;

const stuckPlace = z.object({
  state: z.enum(STUCK_STATES),
  stack: z.string().exactOptional(),
  chunks: z.int().min(0),
  lastChunkMs: z.number().exactOptional(),
  eventLoopUtilization: z.number().exactOptional(),
  heapUsedBytes: z.number().exactOptional(),
}) satisfies z.ZodType<StuckPlace>;

const attemptError = z.object({
  code: z.enum(ERROR_CODES),
  message: z.string(),
  type: z.string().exactOptional(),
  stack: z.string().exactOptional(),
  stuck: stuckPlace.exactOptional(),
}) satisfies z.ZodType<AttemptError>;

const executionMs = z.number().min(0);
const stopped = z.enum(STOP_LEVELS);

const outcome = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('completed'), executionMs, output: z.enum(['value', 'chunks']) }),
  z.object({
    kind: z.literal('failed'),
    executionMs,
    error: attemptError,
    retry: z.enum(['default', 'never', 'after']),
    retryAfterMs: z.number().min(0).exactOptional(),
    stopped: stopped.exactOptional(),
  }),
  z.object({ kind: z.literal('timed_out'), executionMs, error: attemptError, stopped }),
  z.object({ kind: z.literal('cancelled'), executionMs, stopped }),
  z.object({ kind: z.literal('released'), reason: z.enum(RELEASE_REASONS) }),
]) satisfies z.ZodType<Outcome>;

const figure = z.number().min(0).exactOptional();

const attemptUsage = z.object({
  gpu: z
    .object({
      seconds: z.number().min(0),
      vramPeakBytes: figure,
      vramMeanBytes: figure,
      vramScope: z.enum(VRAM_SCOPES).exactOptional(),
      utilizationMean: figure,
      energyJoules: figure,
      shared: z.boolean(),
    })
    .exactOptional(),
}) satisfies z.ZodType<AttemptUsage>;

function isSizeList(value: unknown): boolean {
  if (!Array.isArray(value) || value.length === 0 || value.length > MAX_CHUNKS) return false;
  return value.every((size) => Number.isInteger(size) && size >= 2 && size <= MAX_CHUNK_BYTES);
}

const reportBase = {
  ...leaseRef.shape,
  seq: z.int().min(1),
  traceparent: traceparent.exactOptional(),
};

export const reportHeader = z.discriminatedUnion('kind', [
  z.object({
    ...reportBase,
    kind: z.literal('chunks'),
    first: z.int().min(0),
    sizes: z.custom<number[]>(
      isSizeList,
      `must be 1 to ${MAX_CHUNKS} whole numbers from 2 to ${MAX_CHUNK_BYTES}`,
    ),
  }),
  z.object({ ...reportBase, kind: z.literal('progress') }),
  z.object({ ...reportBase, kind: z.literal('log'), dropped: z.int().min(0) }),
  z.object({
    ...reportBase,
    kind: z.literal('outcome'),
    outcome,
    recycle: z.literal(true).exactOptional(),
    usage: attemptUsage.exactOptional(),
    waitedMs: figure,
  }),
]) satisfies z.ZodType<ReportHeader>;

export const reportReply = z.discriminatedUnion('answer', [
  z.object({ answer: z.literal('applied') }),
  z.object({ answer: z.literal('duplicate') }),
  z.object({ answer: z.literal('gap'), expected: z.int() }),
  z.object({ answer: z.literal('superseded') }),
  z.object({ answer: z.literal('gone') }),
]) satisfies z.ZodType<ReportReply>;

export const workerBye = z.object({
  ...workerIdentity.shape,
  reason: z.enum(['drained', 'crashed']),
  outbox: listOf(leaseRef, MAX_LISTED, isLeaseRef),
  detail: z.string().max(4_000).exactOptional(),
}) satisfies z.ZodType<WorkerBye>;

// The most common messages, recognised without zod: for a short job, zod's checks and copies cost more than anything
// else here. These checks accept only messages that the schemas accept; the schemas check every other message.

export function isToken(value: unknown): value is string {
  return isText(value, MAX_TOKEN_LENGTH);
}

/** A lease in an outbox, without another member. */
export function isLeaseRef(value: unknown): value is LeaseRef {
  if (!isObject(value) || countMembers(value) !== 3) return false;
  const { attempt, jobId, token } = value;
  return isText(jobId, MAX_JOB_ID_LENGTH) && isToken(token) && isCount(attempt);
}

/** A lease in a renewal, without another member. */
export function isRenewedLease(value: unknown): value is RenewRequest['leases'][number] {
  if (!isObject(value)) return false;
  const { delivering, jobId, stopping, token } = value;
  return (
    countMembers(value) === (delivering === undefined ? 3 : 4) &&
    isText(jobId, MAX_JOB_ID_LENGTH) &&
    isToken(token) &&
    typeof stopping === 'boolean' &&
    (delivering === undefined || typeof delivering === 'boolean')
  );
}

/** An outcome `completed` with all of its members and no other. */
export function isCompletedReport(header: unknown): header is ReportHeader {
  if (!isObject(header)) return false;
  const { attempt, jobId, kind, outcome, seq, token, traceparent } = header;
  return (
    kind === 'outcome' &&
    countMembers(header) === (traceparent === undefined ? 6 : 7) &&
    isText(jobId, MAX_JOB_ID_LENGTH) &&
    isToken(token) &&
    isCount(attempt) &&
    isCount(seq) &&
    (traceparent === undefined || isText(traceparent, TRACEPARENT_LENGTH)) &&
    isCompleted(outcome)
  );
}

function isCompleted(outcome: unknown): outcome is Outcome {
  if (!isObject(outcome)) return false;
  const { executionMs, kind, output } = outcome;
  return (
    kind === 'completed' &&
    countMembers(outcome) === 3 &&
    typeof executionMs === 'number' &&
    Number.isFinite(executionMs) &&
    executionMs >= 0 &&
    (output === 'value' || output === 'chunks')
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

function countMembers(value: object): number {
  let count = 0;
  for (const _name in value) count += 1;
  return count;
}

function isText(value: unknown, maxLength: number): value is string {
  return typeof value === 'string' && value.length > 0 && value.length <= maxLength;
}

/** A whole number from 1. */
function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && typeof value === 'number' && value >= 1;
}
