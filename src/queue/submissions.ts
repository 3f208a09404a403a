// Adds jobs to the queue, one or several at once: stores large inputs first, and wakes those who wait for jobs.
import type { Clock } from '../base/clock.ts';
import { createUuidV7, deriveUuidV7 } from '../base/id.ts';
import type {
  JobKey,
  Payload,
  Reader,
  Store,
  StoredJob,
  Transaction,
  UploadedPayload,
} from '../store/store.ts';
import type { JobStatus } from '../wire/job/job.ts';
import { ProblemError } from '../wire/problem.ts';
import type { TraceContext } from '../wire/trace-context.ts';
import {
  type AdmittingEndpoint,
  type Arrival,
  admit,
  createId,
  type Inserted,
  insert,
  judgeWebhook,
  readQueue,
  type Submission,
} from './admission.ts';
import type { StepOn } from './changes.ts';
import type { QueueParts } from './queue-parts.ts';
import type { Signals } from './signals.ts';

export interface JobRef {
  id: string;
  status: JobStatus;
}

type SubmissionsOptions = Pick<
  QueueParts,
  | 'arrivals'
  | 'changes'
  | 'clock'
  | 'payloads'
  | 'positions'
  | 'remoteJobs'
  | 'signals'
  | 'store'
  | 'tracing'
  | 'webhooks'
>;

/**
 * Inputs of jobs that are being stored, by job ID: a take at the same moment does not need to read
 * them from the store.
 */
export type Arrivals = Map<string, Uint8Array>;

/** For commits that add jobs: none while the disk is full. */
export const REFUSING = { onFullDisk: 'refuse' } as const;

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
    const { arrivals, changes, clock, positions, remoteJobs, signals, store, tracing } =
      this.#options;
    const { after, endpointId } = submission;
    const remote = after && (await remoteJobs.ofSubmission(endpointId, after));
    const arrival = {
      id,
      input,
      chosen: this.#chosen,
      now: clock.now(),
      position: positions.next(),
      ...(remote && { remote }),
    };
    try {
      const { job, isNew } = await (after
        ? changes.commit((tx, step) => this.#arrive(tx, submission, arrival, step), REFUSING)
        : store.write((tx) => this.#arrive(tx, submission, arrival)));
      if (isNew) signals.inserted(job);
      if (isNew && tracing) tracing.submitted(job, arrival.now);
      return { id: job.id, status: job.status };
    } finally {
      arrivals.delete(id);
    }
  }

  #arrive(tx: Transaction, submission: Submission, arrival: Arrival, step?: StepOn): Inserted {
    const { arrivals, signals } = this.#options;
    const endpoint = readQueue(tx, submission.endpointId);
    const inserted = insert(tx, endpoint, { submission, arrival }, step);
    if (inserted.isNew) {
      arrivals.set(inserted.job.id, submission.input);
      signals.arriving(inserted.job);
    }
    return inserted;
  }
}

function findFirst(tx: Reader, submission: Submission, chosen: ChosenIds): StoredJob | undefined {
  const endpoint = readQueue(tx, submission.endpointId);
  return admit(tx, endpoint, { submission, chosen });
}

/** Bytes of inputs that the operation writes itself; it must not hold the event loop for long. */
export const MAX_WRITTEN_BYTES = 1_048_576;

/** Stores large inputs before their jobs, and puts the uploads in their place. @returns the uploads, which the caller must release */
export async function stageInputs<Job extends { input: Payload }>(
  payloads: QueueParts['payloads'],
  jobs: readonly Job[],
  keyOf: (job: Job) => JobKey,
): Promise<UploadedPayload[]> {
  const staged: UploadedPayload[] = [];
  let writtenBytes = 0;
  try {
    for (const job of jobs) {
      const { input: bytes } = job;
      if (!(bytes instanceof Uint8Array)) continue;
      if (!payloads.isLarge(bytes) && writtenBytes + bytes.length <= MAX_WRITTEN_BYTES) {
        writtenBytes += bytes.length;
        continue;
      }
      const { endpointId, id } = keyOf(job);
      const payload = await payloads.upload({ kind: 'input', key: { endpointId, id }, bytes });
      staged.push(payload);
      job.input = payload;
    }
    return staged;
  } catch (error) {
    for (const payload of staged) payloads.release(payload);
    throw error;
  }
}

/** One job of a batch. Its input may be a view into a larger buffer. */
export type BatchedJob = Pick<Submission, 'after' | 'idempotency' | 'input' | 'policy' | 'webhook'>;

export interface SubmissionBatch {
  endpointId: string;
  jobs: readonly BatchedJob[];
  /** Trace of all jobs. */
  trace?: TraceContext | undefined;
  /**
   * ID that the caller has chosen for the batch; the IDs of its jobs follow from it. `isRepeated`: an earlier attempt
   * may have added the jobs; then those are returned. Default: the queue chooses the IDs.
   */
  newJobs?: { id: string; isRepeated: boolean } | undefined;
}

/** A job of the batch: accepted, or the reason of its refusal. */
export type Submitted = JobRef | ProblemError;

interface BatchContext extends Omit<SubmissionsOptions, 'arrivals'> {
  chosen: ChosenIds;
}

/** A job that nothing has refused so far. */
interface Candidate {
  submission: Submission;
  arrival: Arrival;
}

/** Adds the jobs of one request with one operation, so that one commit has all of them. Resolves as Submissions.submitMany. */
async function submitBatch(context: BatchContext, batch: SubmissionBatch): Promise<Submitted[]> {
  const { changes, payloads, remoteJobs, signals, store, tracing } = context;
  if (batch.newJobs) context.chosen.note(batch.newJobs.id);
  const jobs = batch.jobs.map((job, index) => createCandidate(context, { batch, index, job }));
  const parents = batch.jobs.flatMap(({ after = [] }) => after);
  const remote = await remoteJobs.ofSubmission(batch.endpointId, parents);
  for (const job of jobs) if ('arrival' in job) job.arrival.remote = remote;
  const staged = await storeInputs(context, jobs);
  try {
    const insertion = { endpointId: batch.endpointId, jobs, signals };
    const options = { ...REFUSING, weight: jobs.length };
    const results = await (parents.length > 0
      ? changes.commit((tx, step) => insertAll(tx, insertion, step), options)
      : store.write((tx) => insertAll(tx, insertion), options));
    return results.map((result) => {
      if (!('job' in result)) return result;
      const { isNew, job } = result;
      if (isNew) signals.inserted(job);
      if (isNew && tracing) tracing.submitted(job, job.submittedAt);
      return { id: job.id, status: job.status };
    });
  } finally {
    for (const payload of staged) payloads.release(payload);
  }
}

function createCandidate(
  { chosen, clock, positions, webhooks }: BatchContext,
  { batch, index, job }: { batch: SubmissionBatch; index: number; job: BatchedJob },
): Candidate | ProblemError {
  const refusal = judgeWebhook(job, webhooks);
  if (refusal) return refusal;
  const { endpointId, newJobs, trace } = batch;
  const { after, idempotency, input, policy, webhook } = job;
  const now = clock.now();
  const id = newJobs ? deriveUuidV7(newJobs.id, index) : createUuidV7(now);
  const newJob = newJobs && { id, isRepeated: newJobs.isRepeated, requestId: newJobs.id };
  return {
    submission: {
      endpointId,
      mode: 'run',
      input,
      policy,
      idempotency,
      webhook,
      after,
      trace,
      newJob,
    },
    arrival: { id, input, now, position: positions.next(), chosen },
  };
}

/**
 * Stores large inputs before the jobs, one after the other. A candidate that is refused or known already is replaced by
 * the result. @returns the uploads, which the caller must release
 */
async function storeInputs(
  { chosen, payloads, store }: BatchContext,
  jobs: (Candidate | Submitted)[],
): Promise<UploadedPayload[]> {
  const staged: UploadedPayload[] = [];
  let writtenBytes = 0;
  try {
    for (const [index, job] of jobs.entries()) {
      if (!('arrival' in job)) continue;
      const { arrival, submission } = job;
      const { endpointId, input } = submission;
      const isSmall = !payloads.isLarge(input) && writtenBytes + input.length <= MAX_WRITTEN_BYTES;
      if (isSmall) {
        writtenBytes += input.length;
        continue;
      }
      // Without this, a submission that is refused would be stored first.
      const known = await store.read((tx) => findResult(tx, submission, chosen));
      if (known) {
        jobs[index] = known;
        continue;
      }
      const key = { endpointId, id: arrival.id };
      const payload = await payloads.upload({ kind: 'input', key, bytes: input });
      staged.push(payload);
      arrival.input = payload;
    }
    return staged;
  } catch (error) {
    for (const payload of staged) payloads.release(payload);
    throw error;
  }
}

/**
 * The result of a submission that would add no job now; the insertion decides again. @throws ProblemError `not_found`,
 * `conflict` for an endpoint without a queue
 */
function findResult(tx: Reader, submission: Submission, chosen: ChosenIds): Submitted | undefined {
  const endpoint = readQueue(tx, submission.endpointId);
  try {
    const first = admit(tx, endpoint, { submission, chosen });
    return first && { id: first.id, status: first.status };
  } catch (error) {
    return asRefusal(error);
  }
}

interface Insertion {
  endpointId: string;
  jobs: readonly (Candidate | Submitted)[];
  signals: Signals;
}

/** Inserts the candidates. @throws ProblemError `not_found`, `conflict` for an endpoint without a queue */
function insertAll(
  tx: Transaction,
  { endpointId, jobs, signals }: Insertion,
  step?: StepOn,
): (Inserted | Submitted)[] {
  const { settings, ...endpoint } = readQueue(tx, endpointId);
  let { inQueue } = endpoint;
  const results: (Inserted | Submitted)[] = [];
  tx.each(jobs, (job) =>
    'arrival' in job ? findResult(tx, job.submission, job.arrival.chosen) : undefined,
  );
  for (const job of jobs) {
    const result = 'arrival' in job ? tryInsert(tx, { settings, inQueue }, job, step) : job;
    if ('job' in result && result.isNew) {
      inQueue += 1;
      signals.arriving(result.job);
    }
    results.push(result);
  }
  return results;
}

/** A refused submission has changed nothing, so the operation goes on. */
function tryInsert(
  tx: Transaction,
  endpoint: AdmittingEndpoint,
  candidate: Candidate,
  step: StepOn | undefined,
): Inserted | ProblemError {
  try {
    return insert(tx, endpoint, candidate, step);
  } catch (error) {
    return asRefusal(error);
  }
}

function asRefusal(error: unknown): ProblemError {
  if (error instanceof ProblemError) return error;
  throw error;
}

/** A repetition follows its first submission within seconds. */
const MAX_IDS = 16_384;

/**
 * Remembers the job IDs that callers have chosen lately. A repeated submission may overtake the first one, so both must
 * look whether the job exists.
 */
export class ChosenIds {
  readonly #seen = new Map<string, 'once' | 'again'>();

  note(id: string): void {
    this.#seen.set(id, this.#seen.has(id) ? 'again' : 'once');
    const [oldest] = this.#seen.size > MAX_IDS ? this.#seen.keys() : [];
    if (oldest !== undefined) this.#seen.delete(oldest);
  }

  isRepeated(id: string): boolean {
    return this.#seen.get(id) === 'again';
  }
}

export class Positions {
  readonly #clock: Pick<Clock, 'now'>;
  #last = 0;

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  /** Continues after all stored jobs: the clock of an earlier process may have been ahead. */
  async resume(store: Store): Promise<void> {
    const last = await store.read((tx) => {
      const newest = tx.each(tx.endpoints(), ({ id }) =>
        tx.jobs({ endpointId: id, status: undefined, before: undefined, limit: 1 }),
      );
      return newest.flat().reduce((highest, { position }) => Math.max(highest, position), 0);
    });
    this.#last = Math.max(this.#last, last);
  }

  /** Unix microseconds: the current millisecond and a counter. Positions always grow. */
  next(): number {
    this.#last = Math.max(this.#clock.now() * 1_000, this.#last + 1);
    return this.#last;
  }
}
