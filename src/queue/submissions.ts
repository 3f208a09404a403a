// Adds jobs to the queue, one or several at once: stores large inputs first, and wakes those who wait for jobs.
import type { Clock } from '../base/clock.ts';
import type { Payload, Reader, Step, Store, StoredJob, Transaction } from '../store/store.ts';
import type { JobStatus } from '../wire/job/job.ts';
import {
  type Arrival,
  admit,
  type Inserted,
  insert,
  judgeWebhook,
  readQueue,
} from './admission.ts';
import { ChosenIds } from './chosen-ids.ts';
import { createId, type Submission } from './new-job.ts';
import type { LargePayloads } from './payloads/large-payloads.ts';
import type { Positions } from './positions.ts';
import type { Signals } from './signals.ts';
import { type SubmissionBatch, type Submitted, submitBatch } from './submission-batch.ts';
import type { JobTracing } from './tracing/job-tracing.ts';
import type { WebhookSender } from './webhooks/webhooks.ts';

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
    const refusal = judgeWebhook(submission, this.#options.webhooks);
    if (refusal) throw refusal;
    if (submission.newJob) this.#chosen.note(submission.newJob.id);
    const id = submission.newJob?.id ?? createId(submission, this.#options.clock.now());
    if (!this.#options.payloads.isLarge(submission.input)) {
      return this.#insert(submission, { id, input: submission.input });
    }
    return this.#submitLarge(submission, id);
  }

  /**
   * Resolves when the accepted jobs are on disk, with the results in the order of the batch: one commit has all of the
   * jobs, so a rejected batch has added none. @throws ProblemError `not_found`, `conflict` if the endpoint has no queue
   */
  submitMany(batch: SubmissionBatch): Promise<Submitted[]> {
    return submitBatch({ ...this.#options, chosen: this.#chosen }, batch);
  }

  /** Stores the input before the job. */
  async #submitLarge(submission: Submission, id: string): Promise<JobRef> {
    const { payloads, store } = this.#options;
    const { endpointId, input } = submission;
    // Without this, a submission that is refused would be stored first.
    const first = await store.read((tx) => findFirst(tx, submission, this.#chosen));
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

  *#arrive(tx: Transaction, submission: Submission, arrival: Arrival): Step<Inserted> {
    const { arrivals, signals } = this.#options;
    const endpoint = yield* readQueue(tx, submission.endpointId);
    const inserted = yield* insert(tx, endpoint, { submission, arrival });
    if (inserted.isNew) {
      arrivals.set(inserted.job.id, submission.input);
      signals.arriving(inserted.job);
    }
    return inserted;
  }
}

function* findFirst(
  tx: Reader,
  submission: Submission,
  chosen: ChosenIds,
): Step<StoredJob | undefined> {
  const endpoint = yield* readQueue(tx, submission.endpointId);
  return yield* admit(tx, endpoint, { submission, chosen });
}
