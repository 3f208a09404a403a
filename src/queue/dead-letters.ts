// Dead letters: failed jobs that are kept after their retention, for `failedRetention` of their endpoint and within the bounds
// of its owner. A failed job can be read, submitted again as a new job, and deleted; job-lists.ts lists them.
import { createUuidV7 } from '../base/id.ts';
import {
  isDeadLetter,
  type JobKey,
  type Reader,
  type StoredJob,
  type Transaction,
} from '../store/store.ts';
import type { FailedJobDetails, ResubmittedJob } from '../wire/job/job-records.ts';
import { ProblemError } from '../wire/problem.ts';
import type { Submission } from './admission.ts';
import { readEndpoint } from './endpoint-removal.ts';
import { hasFailed } from './lifecycle/lifecycle.ts';
import type { Decision } from './lifecycle/transition.ts';
import { measureInput } from './payloads/outputs.ts';
import type { QueueParts } from './queue-parts.ts';
import { addMembers, describeDetails } from './records.ts';
import type { QueueSettings } from './settings.ts';
import type { Submissions } from './submissions.ts';

/** Kind of the row with the totals of a user. */
const KIND = 'dead_letters';
/** Users whose totals one pass checks. */
const MAX_USERS = 1_000;
/** Dead letters that one operation removes for newer ones. */
const REMOVED_AT_ONCE = 32;

interface Totals {
  jobs: number;
  /** Of inputs, logs and errors. */
  bytes: number;
}

interface JobDecision {
  before: StoredJob;
  decision: Decision;
  settings: Pick<QueueSettings, 'deadLetters'>;
}

/** Keeps the totals of the endpoint's owner. Call this before the change is made. */
export function countDeadLetter(
  tx: Transaction,
  { before, decision, settings }: JobDecision,
): void {
  if ('refused' in decision) return;
  const was = isDeadLetter(before);
  const isOne = !decision.removed && isDeadLetter(decision.job);
  if (was === isOne) return;
  const userId = tx.endpoint(before.endpointId)?.userId;
  if (userId === undefined) return;
  const { bytes, jobs } = readTotals(tx, userId);
  const sign = isOne ? 1 : -1;
  const totals: Totals = {
    jobs: Math.max(0, jobs + sign),
    bytes: Math.max(0, bytes + sign * measure(tx, before)),
  };
  const body = JSON.stringify(totals);
  if (totals.jobs === 0) tx.removeResource({ kind: KIND, id: userId });
  else {
    // Lists begin with the highest position.
    const position = isBeyond(totals, settings) ? 1 : 0;
    tx.putResource({ kind: KIND, id: userId, userId, parent: '', position, body });
  }
}

/** The error does not change while the job is kept. */
function measure(tx: Reader, job: StoredJob): number {
  const error = job.error ? JSON.stringify(job.error).length : 0;
  return job.logBytes + measureInput(tx, job) + error;
}

/** Asks for what `countDeadLetter` reads of all of these jobs at once. */
export function prepareCount(tx: Reader, jobs: readonly StoredJob[]): void {
  tx.each(
    jobs.filter(({ status }) => status === 'FAILED' || status === 'TIMED_OUT'),
    (job) => measureInput(tx, job),
  );
}

function readTotals(tx: Reader, userId: string): Totals {
  const row = tx.resource({ kind: KIND, id: userId });
  return row ? JSON.parse(row.body) : { jobs: 0, bytes: 0 };
}

type TrimOptions = Pick<QueueParts, 'changes' | 'settings' | 'store'>;

function isBeyond({ bytes, jobs }: Totals, { deadLetters }: Pick<QueueSettings, 'deadLetters'>) {
  return jobs > deadLetters.maxJobs || bytes > deadLetters.maxBytes;
}

/** Removes the oldest dead letters of users who have more than they may. @returns whether it has removed any */
export async function trimDeadLetters(options: TrimOptions): Promise<boolean> {
  const { changes, settings, store } = options;
  const isOver = (totals: Totals) => isBeyond(totals, settings);
  const rows = await store.read((tx) => tx.resources({ kind: KIND, limit: MAX_USERS }));
  let hasRemoved = false;
  for (const { body, userId } of rows) {
    for (let totals: Totals = JSON.parse(body); isOver(totals); ) {
      hasRemoved = true;
      totals = await changes.inSlice(() =>
        changes.commit((tx, step) => {
          const oldest = findOldest(tx, userId);
          prepareCount(tx, oldest);
          for (const job of oldest) {
            if (!isOver(readTotals(tx, userId))) break;
            step(job, { type: 'delete' });
          }
          if (oldest.length > 0) return readTotals(tx, userId);
          tx.removeResource({ kind: KIND, id: userId });
          return { jobs: 0, bytes: 0 };
        }),
      );
    }
  }
  return hasRemoved;
}

function findOldest(tx: Transaction, userId: string): StoredJob[] {
  const own = tx.endpoints().filter((endpoint) => endpoint.userId === userId);
  const some = tx.each(own, ({ id }) => tx.oldestDeadLetters(id, REMOVED_AT_ONCE));
  return some
    .flat()
    .sort((a, b) => a.position - b.position)
    .slice(0, REMOVED_AT_ONCE);
}

type DeadLettersOptions = Pick<QueueParts, 'changes' | 'clock' | 'payloads' | 'settings' | 'store'>;

/** Failed jobs, whether their retention is over or not. */
export class DeadLetters {
  readonly #options: DeadLettersOptions;
  readonly #submissions: Submissions;

  constructor(options: DeadLettersOptions, submissions: Submissions) {
    this.#options = options;
    this.#submissions = submissions;
  }

  /** Returns error, timeline, input and log as JSON, in pieces. @throws ProblemError `not_found` */
  async details(key: JobKey): Promise<Uint8Array[]> {
    const { clock, settings, store } = this.#options;
    const { job, log } = await store.read((tx) => ({
      job: requireFailed(tx, key),
      log: tx.log({ ...key, from: 0, maxBytes: settings.maxLogBytes }),
    }));
    const { error, resubmission } = job;
    const { error: _short, ...details } = describeDetails(job, clock.now());
    const head: FailedJobDetails = {
      ...details,
      endpointId: key.endpointId,
      ...(error && { error }),
      ...(resubmission?.of !== undefined && { retryOf: resubmission.of }),
      ...(resubmission?.as !== undefined && { retriedAs: resubmission.as }),
      log: Buffer.from(log).toString(),
    };
    return addMembers({ ...head }, { input: await this.#readInput(job) });
  }

  /** Size of input and log, without reading them. */
  measure(key: JobKey): Promise<number> {
    return this.#options.store.read((tx) => {
      const job = requireFailed(tx, key);
      return measureInput(tx, job) + 2 * job.logBytes;
    });
  }

  /**
   * Submits each failed job again, as a new job that names it. A job that was submitted again before is not submitted
   * once more: its entry names the job of the first time.
   */
  async resubmit(endpointId: string, ids: readonly string[]): Promise<ResubmittedJob[]> {
    await this.#options.store.read((tx) => readEndpoint(tx, endpointId));
    const results: ResubmittedJob[] = [];
    // One after the other: their inputs may be large.
    for (const id of ids) results.push(await this.#resubmit({ endpointId, id }));
    return results;
  }

  async #resubmit(key: JobKey): Promise<ResubmittedJob> {
    const { clock, store } = this.#options;
    const { id: retryOf } = key;
    try {
      const job = await store.read((tx) => requireFailed(tx, key));
      const as = job.resubmission?.as;
      if (as !== undefined) return { retryOf, id: as, isNew: false };
      if (job.error?.code === 'parent_failed') refuseChild(job);
      const input = await this.#readInput(job);
      const newId = createUuidV7(clock.now());
      const submission = {
        ...composeSubmission(job, input),
        newJob: { id: newId, isRepeated: false },
      };
      const { id } = await this.#submissions.submit(submission);
      return { retryOf, id, isNew: id === newId };
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      return { retryOf, error: error.toProblem() };
    }
  }

  /** Deletes failed jobs; others and those that are gone are left out of the number. */
  async delete(endpointId: string, ids: readonly string[]): Promise<number> {
    const { changes } = this.#options;
    return await changes.inSlice(() =>
      changes.commit((tx, step) => {
        readEndpoint(tx, endpointId);
        const found = tx.each(new Set(ids), (id) => tx.anyJob({ endpointId, id }));
        const jobs = found.filter((job) => job !== undefined).filter(hasFailed);
        prepareCount(tx, jobs);
        return jobs.filter((job) => !('refused' in step(job, { type: 'delete' }))).length;
      }),
    );
  }

  async #readInput(job: StoredJob): Promise<Uint8Array> {
    const { payloads, store } = this.#options;
    const input = await store.read((tx) => tx.payloadUpTo('input', job, payloads.partBytes));
    const whole = typeof input === 'number' ? await payloads.read('input', job, input) : input;
    return whole ?? raiseGone(job);
  }
}

/** What the failed job was submitted with, but for its delay and its idempotency key. */
function composeSubmission(job: StoredJob, input: Uint8Array): Submission {
  const {
    attachment,
    endpointId,
    executionTimeoutMs,
    group,
    priority,
    retry,
    tags,
    ttlMs,
    webhook,
  } = job;
  return {
    endpointId,
    mode: 'run',
    input,
    policy: {
      priority,
      executionTimeout: executionTimeoutMs,
      ttl: ttlMs,
      ...(group !== null && { group }),
      ...(retry?.own && { retry: retry.own }),
      ...(tags && { tags: [...tags] }),
    },
    idempotency: undefined,
    webhook: webhook ?? undefined,
    attachment: attachment ?? undefined,
    retryOf: job.id,
    // The handler needs the time of the tick.
    tick: job.tick ? { ...job.tick, isTriggered: true } : undefined,
  };
}

/** @throws ProblemError `not_found`, `conflict` for a job that has not failed */
export function requireFailed(tx: Reader, key: JobKey): StoredJob {
  readEndpoint(tx, key.endpointId);
  const job = tx.anyJob(key) ?? raiseGone(key);
  if (hasFailed(job)) return job;
  const detail = `job ${key.id} is ${job.status}; only FAILED and TIMED_OUT jobs can be used here`;
  throw new ProblemError('conflict', detail);
}

/** A new job would have no parents: it would run without waiting for them, and without their outputs. */
function refuseChild({ error, id }: StoredJob): never {
  const detail = `job ${id} has not run: ${error?.message}. Retry its parent and then the job, or submit both anew`;
  throw new ProblemError('conflict', detail);
}

function raiseGone({ id }: JobKey): never {
  throw new ProblemError('not_found', `failed job ${id} not found or expired`);
}
