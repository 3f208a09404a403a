// Writes down what lifecycle.ts decided, and tells those who wait once it is on disk.
import type { Clock } from '../base/clock.ts';
import type { JobKey, Step, Store, StoredJob, Transaction } from '../store/store.ts';
import { type JobEvent, next } from './lifecycle.ts';
import type { QueueSettings } from './settings.ts';
import type { Signals } from './signals.ts';
import type { Decision, Moment, Transition } from './transition.ts';

/** What happened to one job inside an operation, to be told after the commit. */
export interface Change {
  before: StoredJob;
  transition: Transition;
}

export interface ChangesOptions {
  store: Store;
  clock: Clock;
  random: () => number;
  settings: QueueSettings;
  signals: Signals;
}

export class Changes {
  readonly #options: ChangesOptions;

  constructor(options: ChangesOptions) {
    this.#options = options;
  }

  moment(): Moment {
    const { clock, random, settings } = this.#options;
    return { now: clock.now(), random, settings };
  }

  /**
   * Runs an operation that changes jobs through `step`; wakes who has to be woken after the commit,
   * before it resolves.
   */
  async commit<T>(operation: (tx: Transaction, step: StepOn) => Step<T>): Promise<T> {
    const changes: Change[] = [];
    const moment = this.moment();
    const result = await this.#options.store.write((tx) =>
      operation(tx, (job, event) => apply(tx, { job, event, moment, changes })),
    );
    for (const { before, transition } of changes) this.#options.signals.changed(before, transition);
    return result;
  }

  /** Puts one event to one job; undefined if there is no such job. */
  commitOne(key: JobKey, event: JobEvent): Promise<Decision | undefined> {
    return this.commit(function* (tx, step) {
      const job = yield* tx.job(key);
      return job && (yield* step(job, event));
    });
  }
}

/** Decides by lifecycle.ts and, unless that refuses, stores the result. */
export type StepOn = (job: StoredJob, event: JobEvent) => Step<Decision>;

interface Application {
  job: StoredJob;
  event: JobEvent;
  moment: Moment;
  changes: Change[];
}

function* apply(tx: Transaction, { job, event, moment, changes }: Application): Step<Decision> {
  const decision = next(job, event, moment);
  if ('refused' in decision) return decision;
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
