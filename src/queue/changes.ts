// Stores the decisions of lifecycle.ts and wakes the waiting callers once they are on disk.
import {
  ENDING,
  type Reader,
  type RecordPiece,
  type StoredDelivery,
  type StoredJob,
  type Transaction,
  type WriteOptions,
} from '../store/store.ts';
import { isTerminal } from '../wire/job/job.ts';
import { noteBatchEnds } from './batches/batch-ends.ts';
import { countDeadLetter, prepareCount } from './dead-letters.ts';
import { requestCancel, requestFill } from './flows/fills.ts';
import { noteFlows } from './flows/flow-record.ts';
import type { AddressedMessage, HandoverMessage } from './handover/messages.ts';
import type { Sent } from './handover/outbox.ts';
import { releaseOutputs, tellChildren } from './handover/take-in.ts';
import type { NewLine } from './history/history.ts';
import { findAbandoned } from './lifecycle/handler-wait.ts';
import { type JobEvent, next } from './lifecycle/lifecycle.ts';
import { isFilling } from './lifecycle/links.ts';
import type { Decision, Moment, Transition } from './lifecycle/transition.ts';
import { joinChunks } from './payloads/outputs.ts';
import type { QueueParts } from './queue-parts.ts';
import { composeRecord, hasOutput } from './records.ts';
import { forget } from './steps/memo.ts';

/** Most jobs of a slice, some milliseconds. */
export const SLICE_JOBS = 128;
/** Bytes of the logs that a slice removes. */
export const SLICE_LOG_BYTES = 1_048_576;

/** A change of one job inside an operation; callers are woken after the commit. */
export interface Change {
  before: StoredJob;
  transition: Transition;
  /** All jobs of its flow are cancelled. */
  isWholeFlow?: boolean;
}

/** What one commit does. */
type Operation<T> = (tx: Transaction, step: StepOn, now: number) => T;

/** What one run of an operation did. */
interface OperationResult<T> {
  result: T;
  changes: readonly Change[];
  newDeliveries: readonly StoredDelivery[];
  sent: readonly Sent[];
  newLines: readonly NewLine[];
}

/** The event of the jobs of a slice, or what makes that of each. */
type SliceEvent = JobEvent | ((tx: Transaction, job: StoredJob) => JobEvent);

/** What one slice did. */
export interface Slice {
  changed: number;
  removed: number;
  /** No job is left. */
  isLast: boolean;
}

type ChangesOptions = Pick<
  QueueParts,
  | 'clock'
  | 'deliveries'
  | 'formats'
  | 'histories'
  | 'jobTimes'
  | 'outbox'
  | 'peers'
  | 'random'
  | 'settings'
  | 'signals'
  | 'store'
  | 'tracing'
>;

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
   * commit. The same commit stores the webhook deliveries of jobs that end, and their lines of history. Works while the disk is
   * full, because it moves jobs towards their end, unless `options` say otherwise. The operation
   * may run several times.
   */
  async commit<T>(operation: Operation<T>, options: WriteOptions = ENDING): Promise<T> {
    const moment = this.moment();
    const { deliveries, histories, jobTimes, outbox, signals, store, tracing } = this.#options;
    const { changes, newDeliveries, newLines, result, sent } = await store.write(
      (tx) => this.#run(tx, operation, moment),
      options,
    );
    for (const { before, transition } of changes) {
      jobTimes.changed(before, transition);
      signals.changed(before, transition);
      if (tracing) tracing.changed(before, transition, moment.now);
    }
    for (const delivery of newDeliveries) deliveries.arrived(delivery);
    if (sent.length > 0) outbox.sent(sent);
    if (newLines.length > 0) histories.arrived(newLines);
    return result;
  }

  #run<T>(tx: Transaction, operation: Operation<T>, moment: Moment): OperationResult<T> {
    const { outbox, peers } = this.#options;
    const changes: Change[] = [];
    const messages: AddressedMessage[] = [];
    const step: StepOn = Object.assign(
      (job: StoredJob, event: JobEvent) => apply(tx, { job, event, moment, changes }),
      {
        send: (shard: number | undefined, message: HandoverMessage) => {
          messages.push({ shard: shard ?? peers.shard, message });
        },
      },
    );
    const result = operation(tx, step, moment.now);
    if (changes.some(({ before }) => before.links)) {
      tellChildren(tx, step, { changes, shard: peers.shard });
      releaseOutputs(step, changes);
      noteFlows(tx, step, { changes, now: moment.now });
      noteBatchEnds(tx, changes, moment.now);
      for (const { before, transition } of changes) {
        if (isFilling(transition.job) && !isFilling(before)) requestFill(tx, before);
        const abandoned = findAbandoned(before, transition);
        if (abandoned.length > 0) requestCancel(tx, before, abandoned);
      }
    }
    const sent = messages.length > 0 ? outbox.write(tx, messages) : NOTHING_SENT;
    const newDeliveries = this.#keepRecords(tx, changes, moment);
    const newLines = this.#keepLines(tx, changes, moment);
    return { result, changes, newDeliveries, newLines, sent };
  }

  /** Of jobs that have ended, and of those that are removed before their end. */
  #keepLines(tx: Transaction, changes: readonly Change[], { now }: Moment): readonly NewLine[] {
    const { histories } = this.#options;
    if (!histories.isOn) return [];
    const over = changes.flatMap(({ before, transition: { job, removed } }) =>
      !isTerminal(before.status) && (removed || isTerminal(job.status)) ? job : [],
    );
    return over.length > 0 ? histories.keep(tx, over, now) : [];
  }

  /**
   * Applies the event to the next of many jobs, a slice of them. `find` returns the next ones; it must not return a job
   * to which the event was applied.
   */
  commitSlice(
    find: (tx: Transaction, limit: number) => StoredJob[],
    event: SliceEvent,
  ): Promise<Slice> {
    return this.inSlice(() => this.#commitSlice(find, event));
  }

  /**
   * Runs one slice after the other. Slices that are requested in one iteration of the event loop would share a
   * commit, which would hold the loop for all of them.
   */
  inSlice<T>(act: () => Promise<T>): Promise<T> {
    const ended = this.#slices.then(act);
    this.#slices = ended.catch(() => {});
    return ended;
  }

  #commitSlice(
    find: (tx: Transaction, limit: number) => StoredJob[],
    event: SliceEvent,
  ): Promise<Slice> {
    return this.commit((tx, step): Slice => {
      const found = find(tx, SLICE_JOBS);
      prepareCount(tx, found);
      let changed = 0;
      let removed = 0;
      let logBytes = 0;
      for (const job of found) {
        if (logBytes > SLICE_LOG_BYTES) return { changed, removed, isLast: false };
        const decision = step(job, typeof event === 'function' ? event(tx, job) : event);
        changed++;
        if (!('removed' in decision && decision.removed)) continue;
        removed++;
        logBytes += job.logBytes;
      }
      return { changed, removed, isLast: found.length < SLICE_JOBS };
    });
  }

  /** Stores webhook records. Runs after the operation, because reports store an output after its step. */
  #keepRecords(
    tx: Transaction,
    changes: readonly Change[],
    { now, settings }: Moment,
  ): StoredDelivery[] {
    const { formats } = this.#options;
    const newDeliveries: StoredDelivery[] = [];
    const ended = changes.flatMap(({ before, transition: { job } }) =>
      isTerminal(job.status) && !isTerminal(before.status) && job.webhook !== null ? job : [],
    );
    // `keep` asks for the owner of each.
    tx.each(ended, ({ endpointId }) => tx.endpoint(endpointId));
    for (const job of ended) {
      if (job.webhook === null) continue;
      const output = findOutput(tx, job, settings.maxOutputBytes);
      const compose = formats[job.attachment?.format ?? ''] ?? composeRecord;
      const ending = { job, url: job.webhook, record: compose(job, now, output) };
      newDeliveries.push(this.#options.deliveries.keep(tx, ending));
    }
    return newDeliveries;
  }
}

const NOTHING_SENT: readonly Sent[] = [];

/** Returns a reference to a whole output, which may be 20 MB, so that the store copies it. */
function findOutput(tx: Reader, job: StoredJob, maxBytes: number): RecordPiece | undefined {
  if (!hasOutput(job)) return undefined;
  if (job.outputKind !== 'value') return joinChunks(tx, job, maxBytes);
  return tx.outputBytes(job) > 0 ? { outputOf: job } : undefined;
}

export interface StepOn {
  /** Decides with lifecycle.ts and, unless the event is refused, stores the result. */
  (job: StoredJob, event: JobEvent): Decision;
  /** Writes a message to a shard, by default this one; it is delivered after the commit. */
  send(shard: number | undefined, message: HandoverMessage): void;
}

interface Application {
  job: StoredJob;
  event: JobEvent;
  moment: Moment;
  changes: Change[];
}

function apply(tx: Transaction, { job, event, moment, changes }: Application): Decision {
  const decision = next(job, event, moment);
  if ('refused' in decision) return decision;
  countDeadLetter(tx, { before: job, decision, settings: moment.settings });
  if (decision.removed) {
    tx.removeJob(job);
    forget(tx, job, undefined);
  } else {
    tx.saveJob(job, decision.job, decision.retried);
    if (decision.dropChunks) tx.dropChunks(job);
    if (decision.dropOutput) tx.dropOutput(job);
    forget(tx, job, decision.job);
  }
  const isWholeFlow = event.type === 'cancel' && event.isWholeFlow === true;
  changes.push({ before: job, transition: decision, ...(isWholeFlow && { isWholeFlow }) });
  return decision;
}
