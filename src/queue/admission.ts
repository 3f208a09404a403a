// Admits submissions to the queue, within the endpoint's limit and once for each idempotency key, and makes the first
// state of their jobs.
import { createUuidV7 } from '../base/id.ts';
import {
  type JobAttachment,
  type JobTick,
  NEW_JOB,
  type Payload,
  type Reader,
  type StoredEndpoint,
  type StoredJob,
  type Transaction,
} from '../store/store.ts';
import {
  type JobPolicy,
  LIMITS,
  type ParentReference,
  QUEUE_FULL_RETRY_MS,
} from '../wire/job/job.ts';
import { ProblemError } from '../wire/problem.ts';
import type { TraceContext } from '../wire/trace-context.ts';
import { isWebhookUrl } from '../wire/webhook.ts';
import type { StepOn } from './changes.ts';
import { requireFailed } from './dead-letters.ts';
import { readEndpoint } from './endpoint-removal.ts';
import { insertChild } from './flows/parents.ts';
import { type FoundParents, NO_REMOTE } from './handover/remote-jobs.ts';
import { findDueAt } from './lifecycle/transition.ts';
import type { ChosenIds } from './submissions.ts';
import type { WebhookSender } from './webhooks/webhooks.ts';

/**
 * Why a webhook URL is refused: no delivery attempt could call it. The end of a job must not fail because of its
 * webhook, so the URL is checked now.
 */
export function judgeWebhook(
  { webhook }: Pick<Submission, 'webhook'>,
  sender: WebhookSender | undefined,
): ProblemError | undefined {
  if (webhook === undefined) return undefined;
  const reason = isWebhookUrl(webhook) ? sender?.judge(webhook) : 'not an http or https URL';
  if (reason === undefined) return undefined;
  const errors = [`webhook: ${reason}`];
  return new ProblemError('invalid', `the webhook cannot be called: ${reason}`, { errors });
}

export interface Arrival {
  id: string;
  input: Payload;
  now: number;
  position: number;
  chosen: ChosenIds;
  /** Parents of other shards. Default: none. */
  remote?: FoundParents;
}

export type AdmittingEndpoint = Pick<StoredEndpoint, 'inQueue' | 'settings'>;

export interface Inserted {
  job: StoredJob;
  isNew: boolean;
}

/** `endpoint`: read in the same operation. `step`: for jobs with parents. @throws ProblemError if the submission is refused; then it has changed nothing */
export function insert(
  tx: Transaction,
  endpoint: AdmittingEndpoint,
  { arrival, submission }: { submission: Submission; arrival: Arrival },
  step?: StepOn,
): Inserted {
  const { endpointId, retryOf } = submission;
  const failed = retryOf === undefined ? undefined : tx.anyJob({ endpointId, id: retryOf });
  const first = admit(tx, endpoint, { submission, chosen: arrival.chosen });
  if (first) return { job: first, isNew: false };
  const { id, input, now, position, remote = NO_REMOTE } = arrival;
  const { after = [] } = submission;
  const job = createJob(submission, endpoint, { id, now, position });
  if (step && after.length > 0) {
    return { job: insertChild(tx, step, { job, input, remote, submission }), isNew: true };
  }
  tx.insertJob(job, input);
  if (failed)
    tx.saveJob(failed, { ...failed, resubmission: { ...failed.resubmission, as: id } }, 0);
  return { job, isNew: true };
}

/** @throws ProblemError `not_found`, `conflict` if the endpoint has no queue */
export function readQueue(tx: Reader, endpointId: string): StoredEndpoint {
  const endpoint = readEndpoint(tx, endpointId);
  if (endpoint.deployment?.type !== 'LOAD_BALANCER') return endpoint;
  const detail = `${endpointId} is a load-balancing endpoint and has no queue; send requests to /lb`;
  throw new ProblemError('conflict', detail);
}

/**
 * Returns the job that came before with the same ID or idempotency key. @throws ProblemError if the submission is
 * refused
 */
export function admit(
  tx: Reader,
  { inQueue, settings }: AdmittingEndpoint,
  { chosen, submission }: { submission: Submission; chosen: ChosenIds },
): StoredJob | undefined {
  const { endpointId, idempotency, newJob, retryOf } = submission;
  if (retryOf !== undefined) {
    // It may run again, or be gone, since its input was read.
    const failed = requireFailed(tx, { endpointId, id: retryOf });
    const as = failed.resubmission?.as;
    if (as !== undefined) return { ...failed, id: as };
  }
  // Not for every chosen ID: looking for a job that does not exist asks the database.
  if (newJob && (newJob.isRepeated || chosen.isRepeated(newJob.requestId ?? newJob.id))) {
    const first = tx.job({ endpointId, id: newJob.id });
    if (first) return first;
  }
  if (idempotency) {
    const first = tx.jobByIdempotencyKey(endpointId, idempotency.key);
    if (first && first.requestHash !== idempotency.requestHash) {
      throw new ProblemError(
        'conflict',
        `idempotencyKey "${idempotency.key}" was used with another body, for job ${first.id}`,
      );
    }
    if (first) return first;
  }
  const { maxQueued } = settings;
  if (inQueue < maxQueued) return undefined;
  throw new ProblemError(
    'queue_full',
    `${maxQueued} jobs are queued, the endpoint's limit; retry later`,
    { retryAfterMs: QUEUE_FULL_RETRY_MS },
  );
}

const DEFAULT_PRIORITY = 0;

interface NewJob {
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
  /** The failed job of the endpoint that is submitted again, once. */
  retryOf?: string | undefined;
  attachment?: JobAttachment | undefined;
  /** The job waits for these. */
  after?: readonly ParentReference[] | undefined;
  /** Of a schedule. */
  tick?: JobTick | undefined;
  /**
   * ID for the job, chosen by the caller. `isRepeated`: an earlier attempt may have added the job; then that job
   * is returned. Default: the queue chooses the ID.
   */
  newJob?: NewJob | undefined;
}

/** Where the job is in its queue, and since when. */
interface QueuedAs {
  id: string;
  now: number;
  position: number;
}

export function createId({ mode }: Submission, now: number): string {
  return mode === 'runsync' ? `sync-${createUuidV7(now)}` : createUuidV7(now);
}

export function createJob(
  { attachment, endpointId, idempotency, mode, policy, retryOf, tick, trace, webhook }: Submission,
  { settings }: Pick<StoredEndpoint, 'settings'>,
  { id, now, position }: QueuedAs,
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
    place: position,
    position,
    submittedAt: now,
    queuedAt: now,
    availableAt,
    delayed,
    expiresAt,
    ttlMs,
    executionTimeoutMs: policy.executionTimeout ?? settings.executionTimeoutMs,
    maxAttempts: settings.maxAttempts,
    retry: policy.retry ? { own: policy.retry } : null,
    dueAt: findDueAt({ availableAt, deadlineAt: null, delayed, expiresAt, lease: null }),
    idempotencyKey: idempotency?.key ?? null,
    requestHash: idempotency?.requestHash ?? null,
    traceparent: trace?.traceparent ?? null,
    tracestate: trace?.tracestate ?? null,
    webhook: webhook ?? settings.webhook ?? null,
    tick: tick ?? null,
    attachment: attachment ?? null,
    resubmission: retryOf === undefined ? null : { of: retryOf },
    tags: policy.tags && policy.tags.length > 0 ? [...new Set(policy.tags)] : null,
  };
}
