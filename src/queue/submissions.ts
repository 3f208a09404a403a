// Adds jobs to the queue: within the endpoint's limit, and once for each idempotency key.

import type { Clock } from '../base/clock.ts';
import { createUuidV7 } from '../base/id.ts';
import {
  type JobAttachment,
  NO_TURN,
  type Payload,
  type Reader,
  type Step,
  type Store,
  type StoredEndpoint,
  type StoredJob,
  type Transaction,
} from '../store/store.ts';
import { type JobPolicy, type JobStatus, LIMITS } from '../wire/job/job.ts';
import { ProblemError } from '../wire/problem.ts';
import type { TraceContext } from '../wire/trace-context.ts';
import { isWebhookUrl } from '../wire/webhook.ts';
import { ChosenIds } from './chosen-ids.ts';
import { readEndpoint } from './endpoint-removal.ts';
import { withDueAt } from './lifecycle/transition.ts';
import type { LargePayloads } from './payloads/large-payloads.ts';
import type { Positions } from './positions.ts';
import type { Signals } from './signals.ts';
import type { JobTracing } from './tracing/job-tracing.ts';
import type { WebhookSender } from './webhooks/webhooks.ts';

/** Retry-After of a job that was rejected because the queue is full, ms. */
const QUEUE_FULL_RETRY_MS = 5_000;

const DEFAULT_PRIORITY = 0;

export interface Submission {
  endpointId: string;
  mode: 'run' | 'runsync';
  /** JSON bytes of the input. */
  input: Uint8Array;
  policy: JobPolicy;
  /** `bytesHash`: of the body's bytes, which earlier versions stored in place of the hash of its JSON. */
  idempotency: { key: string; requestHash: string; bytesHash?: string } | undefined;
  /** Trace of all attempts; a repeated idempotency key does not change it. */
  trace?: TraceContext | undefined;
  /** http or https URL that gets the final record. */
  webhook?: string | undefined;
  attachment?: JobAttachment | undefined;
  /**
   * ID for the job, chosen by the caller. `isRepeated`: an earlier attempt may have added the job; then that job
   * is returned. Default: the queue chooses the ID.
   */
  newJob?: { id: string; isRepeated: boolean } | undefined;
}

export interface JobRef {
  id: string;
  status: JobStatus;
}

export interface SubmissionsOptions {
  store: Store;
  clock: Clock;
  signals: Signals;
  webhooks: WebhookSender | undefined;
  arrivals: Arrivals;
  positions: Positions;
  payloads: LargePayloads;
  tracing: JobTracing | undefined;
}

/**
 * Inputs of jobs that are being stored, by job ID: a take at the same moment does not need to read
 * them from the store.
 */
export type Arrivals = Map<string, Uint8Array>;

export class Submissions {
  readonly #options: SubmissionsOptions;
  readonly #chosen = new ChosenIds();

  constructor(options: SubmissionsOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the job is on disk. A known idempotency key returns the first job. @throws
   * ProblemError `not_found`, `queue_full`, `conflict` (the key was used with another body, or the
   * endpoint has no queue), `invalid` (the webhook)
   */
  async submit(submission: Submission): Promise<JobRef> {
    refuseWebhook(submission, this.#options.webhooks);
    if (submission.newJob) this.#chosen.note(submission.newJob.id);
    const id = submission.newJob?.id ?? createId(submission, this.#options.clock.now());
    if (!this.#options.payloads.isLarge(submission.input)) {
      return this.#insert(submission, { id, input: submission.input });
    }
    return this.#submitLarge(submission, id);
  }

  /** Stores the input before the job. */
  async #submitLarge(submission: Submission, id: string): Promise<JobRef> {
    const { payloads, store } = this.#options;
    const { endpointId, input } = submission;
    // Without this, a submission that is refused would be stored first.
    const { first } = await store.read((tx) => admit(tx, submission, this.#chosen));
    if (first) return { id: first.id, status: first.status };
    const staged = await payloads.upload({ kind: 'input', key: { endpointId, id }, bytes: input });
    try {
      return await this.#insert(submission, { id, input: staged });
    } finally {
      payloads.release(staged);
    }
  }

  async #insert(
    submission: Submission,
    { id, input }: { id: string; input: Payload },
  ): Promise<JobRef> {
    const { arrivals, clock, positions, signals, store, tracing } = this.#options;
    const arrival = {
      ...{ id, input, chosen: this.#chosen },
      ...{ now: clock.now(), position: positions.next() },
    };
    try {
      const { job, isNew } = await store.write((tx) => this.#arrive(tx, submission, arrival));
      if (isNew) signals.inserted(job);
      if (isNew && tracing) tracing.submitted(job, arrival.now);
      return { id: job.id, status: job.status };
    } finally {
      arrivals.delete(id);
    }
  }

  *#arrive(
    tx: Transaction,
    submission: Submission,
    arrival: Arrival,
  ): Step<{ job: StoredJob; isNew: boolean }> {
    const { arrivals, signals } = this.#options;
    const inserted = yield* insert(tx, submission, arrival);
    if (inserted.isNew) {
      arrivals.set(inserted.job.id, submission.input);
      signals.arriving(inserted.job);
    }
    return inserted;
  }
}

/**
 * Rejects a webhook URL that no delivery attempt could call. The end of a job must not fail because of
 * its webhook, so the URL is checked now.
 */
function refuseWebhook({ webhook }: Submission, sender: WebhookSender | undefined): void {
  if (webhook === undefined) return;
  const reason = isWebhookUrl(webhook) ? sender?.judge(webhook) : 'not an http or https URL';
  if (reason === undefined) return;
  const errors = [`webhook: ${reason}`];
  throw new ProblemError('invalid', `the webhook cannot be called: ${reason}`, { errors });
}

interface Arrival {
  id: string;
  input: Payload;
  now: number;
  position: number;
  chosen: ChosenIds;
}

function* insert(
  tx: Transaction,
  submission: Submission,
  arrival: Arrival,
): Step<{ job: StoredJob; isNew: boolean }> {
  const { endpoint, first } = yield* admit(tx, submission, arrival.chosen);
  if (first) return { job: first, isNew: false };
  const turn = yield* chooseTurn(tx, submission);
  const job = createJob(submission, endpoint, { ...arrival, turn });
  yield* tx.insertJob(job, arrival.input);
  return { job, isNew: true };
}

/**
 * A delayed job of a group takes its turn when its delay ends: it must neither hold up the group's other jobs, nor
 * get ahead with many others that were delayed. Jobs without a group keep the order of their submission.
 */
function* chooseTurn(tx: Transaction, { endpointId, policy }: Submission): Step<number> {
  const { delay = 0, group = null, priority = DEFAULT_PRIORITY } = policy;
  if (group !== null && delay > 0) return NO_TURN;
  return yield* tx.nextTurn({ endpointId, group, priority });
}

/**
 * Returns the endpoint, and the job that came before with the same idempotency key. @throws ProblemError
 * if the submission is refused
 */
function* admit(
  tx: Reader,
  { endpointId, idempotency, newJob }: Submission,
  chosen: ChosenIds,
): Step<{ endpoint: StoredEndpoint; first?: StoredJob }> {
  const endpoint = yield* readEndpoint(tx, endpointId);
  // Not for every chosen ID: looking for a job that does not exist asks the database.
  if (newJob && (newJob.isRepeated || chosen.isRepeated(newJob.id))) {
    const first = yield* tx.job({ endpointId, id: newJob.id });
    if (first) return { endpoint, first };
  }
  if (endpoint.deployment?.type === 'LOAD_BALANCER') {
    const detail = `${endpointId} is a load-balancing endpoint and has no queue; send requests to /lb`;
    throw new ProblemError('conflict', detail);
  }
  if (idempotency) {
    const first = yield* tx.jobByIdempotencyKey(endpointId, idempotency.key);
    const { bytesHash, requestHash } = idempotency;
    if (first && first.requestHash !== requestHash && first.requestHash !== bytesHash) {
      throw new ProblemError(
        'conflict',
        `idempotencyKey "${idempotency.key}" was used with another body, for job ${first.id}`,
      );
    }
    if (first) return { endpoint, first };
  }
  const { maxQueued } = endpoint.settings;
  if (endpoint.inQueue >= maxQueued) {
    throw new ProblemError(
      'queue_full',
      `${maxQueued} jobs are queued, the endpoint's limit; retry later`,
      {
        retryAfterMs: QUEUE_FULL_RETRY_MS,
      },
    );
  }
  return { endpoint };
}

function createId({ mode }: Submission, now: number): string {
  return mode === 'runsync' ? `sync-${createUuidV7(now)}` : createUuidV7(now);
}

function createJob(
  { attachment, endpointId, idempotency, mode, policy, trace, webhook }: Submission,
  { settings }: StoredEndpoint,
  { id, now, position, turn }: Arrival & { turn: number },
): StoredJob {
  const ttlMs = policy.ttl ?? LIMITS.ttlMs.default;
  const delayMs = policy.delay ?? 0;
  return withDueAt({
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
    availableAt: now + delayMs,
    delayed: delayMs > 0,
    expiresAt: now + ttlMs,
    ttlMs,
    executionTimeoutMs: policy.executionTimeout ?? settings.executionTimeoutMs,
    maxAttempts: settings.maxAttempts,
    startedAt: null,
    deadlineAt: null,
    endedAt: null,
    executionMs: null,
    dueAt: 0,
    attempt: 0,
    failures: 0,
    releases: 0,
    solo: false,
    lease: null,
    lastSeq: 0,
    chunkCount: 0,
    chunkBytes: 0,
    cursorAttempt: 0,
    cursorNext: 0,
    outputKind: 'none',
    logBytes: 0,
    logDropped: 0,
    error: null,
    history: [],
    notes: [],
    progress: null,
    usage: null,
    workerId: null,
    idempotencyKey: idempotency?.key ?? null,
    requestHash: idempotency?.requestHash ?? null,
    traceparent: trace?.traceparent ?? null,
    tracestate: trace?.tracestate ?? null,
    webhook: webhook ?? null,
    attachment: attachment ?? null,
  });
}
