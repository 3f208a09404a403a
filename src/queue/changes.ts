// Stores the decisions of lifecycle.ts and wakes the waiting callers once they are on disk.
import type { Clock } from '../base/clock.ts';
import { SLICE_MS } from '../base/slices.ts';
import {
  ENDING,
  type JobKey,
  NO_TURN,
  type Reader,
  type RecordPiece,
  type Step,
  type Store,
  type StoredDelivery,
  type StoredJob,
  type Transaction,
} from '../store/store.ts';
import { isTerminal } from '../wire/job/job.ts';
import { type JobEvent, next } from './lifecycle/lifecycle.ts';
import type { Decision, Moment, Transition } from './lifecycle/transition.ts';
import { joinChunks } from './payloads/outputs.ts';
import { composeRecord, hasOutput, type RecordFormats } from './records.ts';
import type { QueueSettings } from './settings.ts';
import type { Signals } from './signals.ts';
import type { JobTimes } from './time/job-times.ts';
import type { JobTracing } from './tracing/job-tracing.ts';
import type { Deliveries } from './webhooks/deliveries.ts';

/** Most jobs of a slice. */
const SLICE_JOBS = 512;
/** Jobs that are read at once. */
const JOBS_READ = 32;

/** A change of one job inside an operation; callers are woken after the commit. */
export interface Change {
  before: StoredJob;
  transition: Transition;
}

/**
 * The steps of one commit. Give a function that calls a generator function, not a generator function of its own for each
 * call: V8 makes a hidden class for each, which keeps all that the function refers to until a collection of the old
 * generation.
 */
type Operation<T> = (tx: Transaction, step: StepOn) => Step<T>;

/** What one run of an operation did. */
interface Run<T> {
  result: T;
  changes: readonly Change[];
  kept: readonly StoredDelivery[];
}

/** What one slice did. */
export interface Slice {
  changed: number;
  removed: number;
  /** No job is left. */
  isLast: boolean;
}

export interface ChangesOptions {
  store: Store;
  clock: Clock;
  random: () => number;
  settings: QueueSettings;
  signals: Signals;
  deliveries: Deliveries;
  jobTimes: JobTimes;
  /** For the records of webhooks. */
  formats: RecordFormats;
  tracing: JobTracing | undefined;
}

export class Changes {
  readonly #options: ChangesOptions;
  /** Ends when the last requested slice ends. */
  #slices: Promise<unknown> = Promise.resolve();

  constructor(options: ChangesOptions) {
    this.#options = options;
  }

  moment(): Moment {
    const { clock, random, settings } = this.#options;
    return { now: clock.now(), random, settings };
  }

  /**
   * Runs an operation that changes jobs through `step`, and wakes the affected callers after the
   * commit. The same commit stores the webhook deliveries of jobs that end. Works while the disk is
   * full, because it moves jobs towards their end; `payloadBytes` as in WriteOptions. The operation
   * may run a second time.
   */
  async commit<T>(operation: Operation<T>, payloadBytes = 0): Promise<T> {
    const moment = this.moment();
    const { deliveries, jobTimes, signals, store, tracing } = this.#options;
    const { changes, kept, result } = await store.write(
      (tx) => this.#run(tx, operation, moment),
      payloadBytes > 0 ? { ...ENDING, payloadBytes } : ENDING,
    );
    for (const { before, transition } of changes) {
      jobTimes.changed(before, transition);
      signals.changed(before, transition);
      if (tracing) tracing.changed(before, transition, moment.now);
    }
    for (const delivery of kept) deliveries.arrived(delivery);
    return result;
  }

  *#run<T>(tx: Transaction, operation: Operation<T>, moment: Moment): Step<Run<T>> {
    const changes: Change[] = [];
    const result = yield* operation(tx, (job, event) => apply(tx, { job, event, moment, changes }));
    return { result, changes, kept: yield* this.#keepRecords(tx, changes, moment) };
  }

  /**
   * Applies the event to the next of many jobs: as many as fit into a slice of time. `find` returns the
   * next ones; it must not return a job to which the event was applied.
   */
  commitSlice(
    find: (tx: Transaction, limit: number) => Step<StoredJob[]>,
    event: JobEvent,
  ): Promise<Slice> {
    return this.inSlice(() => this.#commitSlice(find, event));
  }

  /**
   * Runs one slice after the other. Slices that are requested in one turn of the event loop would share a
   * commit, which would hold the loop for all of them.
   */
  inSlice<T>(act: () => Promise<T>): Promise<T> {
    const ended = this.#slices.then(act);
    this.#slices = ended.catch(() => {});
    return ended;
  }

  #commitSlice(
    find: (tx: Transaction, limit: number) => Step<StoredJob[]>,
    event: JobEvent,
  ): Promise<Slice> {
    const { clock } = this.#options;
    return this.commit(function* (tx, step): Step<Slice> {
      const until = clock.now() + SLICE_MS;
      let changed = 0;
      let removed = 0;
      do {
        // The query also writes the rows of the jobs before it, so that their time counts.
        const found = yield* find(tx, JOBS_READ);
        for (const [index, job] of found.entries()) {
          const decision = yield* step(job, event);
          if ('removed' in decision && decision.removed) removed++;
          changed++;
          const isCut = index + 1 < found.length && clock.now() >= until;
          if (isCut) return { changed, removed, isLast: false };
        }
        if (found.length < JOBS_READ) return { changed, removed, isLast: true };
      } while (changed < SLICE_JOBS && clock.now() < until);
      return { changed, removed, isLast: false };
    });
  }

  /** Stores webhook records. Runs after the operation, because reports store an output after its step. */
  *#keepRecords(
    tx: Transaction,
    changes: readonly Change[],
    { now, settings }: Moment,
  ): Step<StoredDelivery[]> {
    const { formats } = this.#options;
    const kept: StoredDelivery[] = [];
    for (const { before, transition } of changes) {
      const { job } = transition;
      const hasEnded = isTerminal(job.status) && !isTerminal(before.status);
      if (!hasEnded || job.webhook === null) continue;
      const output = yield* findOutput(tx, job, settings.maxOutputBytes);
      const compose = formats[job.attachment?.format ?? ''] ?? composeRecord;
      const ending = { job, url: job.webhook, record: compose(job, now, output) };
      kept.push(yield* this.#options.deliveries.keep(tx, ending));
    }
    return kept;
  }

  /** Applies one event to one job; undefined if the job does not exist. */
  commitOne(key: JobKey, event: JobEvent): Promise<Decision | undefined> {
    return this.commit((tx, step) => applyToKnown(tx, step, { key, event }));
  }
}

function* applyToKnown(
  tx: Transaction,
  step: StepOn,
  { event, key }: { key: JobKey; event: JobEvent },
): Step<Decision | undefined> {
  const job = yield* tx.job(key);
  return job && (yield* step(job, event));
}

/** Returns a reference to a whole output, which may be 20 MB, so that the store copies it. */
function* findOutput(tx: Reader, job: StoredJob, maxBytes: number): Step<RecordPiece | undefined> {
  if (!hasOutput(job)) return undefined;
  if (job.outputKind !== 'value') return yield* joinChunks(tx, job, maxBytes);
  return (yield* tx.outputBytes(job)) > 0 ? { outputOf: job } : undefined;
}

/** Decides with lifecycle.ts and, unless the event is refused, stores the result. */
export type StepOn = (job: StoredJob, event: JobEvent) => Step<Decision>;

interface Application {
  job: StoredJob;
  event: JobEvent;
  moment: Moment;
  changes: Change[];
}

function* apply(tx: Transaction, { job, event, moment, changes }: Application): Step<Decision> {
  let decision = next(job, event, moment);
  if ('refused' in decision) return decision;
  const after = decision.job;
  if (after.turn === NO_TURN && after.status === 'IN_QUEUE' && !after.delayed) {
    decision = { ...decision, job: { ...after, turn: yield* tx.nextTurn(after) } };
  }
  if (decision.removed) {
    yield* tx.removeJob(job);
  } else {
    yield* tx.saveJob(job, decision.job, decision.retried);
    if (decision.dropChunks) yield* tx.dropChunks(job);
    if (decision.dropOutput) yield* tx.dropOutput(job);
  }
  changes.push({ before: job, transition: decision });
  return decision;
}
