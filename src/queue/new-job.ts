// Makes the ID and the first state of a new job.
import { createUuidV7 } from '../base/id.ts';
import {
  type JobAttachment,
  NEW_JOB,
  type StoredEndpoint,
  type StoredJob,
} from '../store/store.ts';
import { type JobPolicy, LIMITS } from '../wire/job/job.ts';
import type { TraceContext } from '../wire/trace-context.ts';
import { findDueAt } from './lifecycle/transition.ts';

export const DEFAULT_PRIORITY = 0;

export interface NewJob {
  id: string;
  isRepeated: boolean;
  /** ID that stands for all jobs of one request in ChosenIds. Default: `id`. */
  requestId?: string | undefined;
}

export interface Submission {
  endpointId: string;
  mode: 'run' | 'runsync';
  /** JSON bytes of the input. */
  input: Uint8Array;
  policy: JobPolicy;
  idempotency: { key: string; requestHash: string } | undefined;
  /** Trace of all attempts; a repeated idempotency key does not change it. */
  trace?: TraceContext | undefined;
  /** http or https URL that gets the final record. */
  webhook?: string | undefined;
  attachment?: JobAttachment | undefined;
  /**
   * ID for the job, chosen by the caller. `isRepeated`: an earlier attempt may have added the job; then that job
   * is returned. Default: the queue chooses the ID.
   */
  newJob?: NewJob | undefined;
}

/** Where the job is in its queue, and since when. */
export interface NewPlace {
  id: string;
  now: number;
  position: number;
  turn: number;
}

export function createId({ mode }: Submission, now: number): string {
  return mode === 'runsync' ? `sync-${createUuidV7(now)}` : createUuidV7(now);
}

export function createJob(
  { attachment, endpointId, idempotency, mode, policy, trace, webhook }: Submission,
  { settings }: Pick<StoredEndpoint, 'settings'>,
  { id, now, position, turn }: NewPlace,
): StoredJob {
  const ttlMs = policy.ttl ?? LIMITS.ttlMs.default;
  const delayMs = policy.delay ?? 0;
  const availableAt = now + delayMs;
  const delayed = delayMs > 0;
  const expiresAt = availableAt + ttlMs;
  return {
    ...NEW_JOB,
    endpointId,
    id,
    status: 'IN_QUEUE',
    mode,
    priority: policy.priority ?? DEFAULT_PRIORITY,
    group: policy.group ?? null,
    turn,
    position,
    submittedAt: now,
    queuedAt: now,
    availableAt,
    delayed,
    expiresAt,
    ttlMs,
    executionTimeoutMs: policy.executionTimeout ?? settings.executionTimeoutMs,
    maxAttempts: settings.maxAttempts,
    dueAt: findDueAt({ availableAt, deadlineAt: null, delayed, expiresAt, lease: null }),
    idempotencyKey: idempotency?.key ?? null,
    requestHash: idempotency?.requestHash ?? null,
    traceparent: trace?.traceparent ?? null,
    tracestate: trace?.tracestate ?? null,
    webhook: webhook ?? null,
    attachment: attachment ?? null,
  };
}
