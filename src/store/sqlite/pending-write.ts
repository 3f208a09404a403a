// One operation that waits for its commit, and the promise of its caller.
import type { Step, WriteOptions } from '../store.ts';

export type RunSteps = <T>(steps: Step<T>) => T;

export interface PendingWrite {
  readonly options: WriteOptions;
  /** It gets a transaction of its own. */
  isAlone: boolean;
  /** Runs the steps, perhaps for a second time. Throws what they throw. */
  run(runSteps: RunSteps): void;
  /** Its last run is undone: it threw this. */
  fail(error: unknown): void;
  /** Gives the caller the result of the last run. */
  settle(): void;
  /** Whatever the last run did, the caller gets this error. */
  reject(error: unknown): void;
}

interface WriteCall<T> {
  start: () => Step<T>;
  options: WriteOptions;
}

/** A class, because three closures for each operation cost more memory. */
export class CallersWrite<T> implements PendingWrite {
  readonly options: WriteOptions;
  readonly reject: (error: unknown) => void;
  isAlone = false;
  readonly #start: () => Step<T>;
  readonly #resolve: (value: T) => void;
  #result: { value: T } | { error: unknown } | undefined;

  constructor(
    { options, start }: WriteCall<T>,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
  ) {
    this.options = options;
    this.reject = reject;
    this.#start = start;
    this.#resolve = resolve;
  }

  run(runSteps: RunSteps): void {
    this.#result = { value: runSteps(this.#start()) };
  }

  fail(error: unknown): void {
    this.#result = { error };
  }

  settle(): void {
    const result = this.#result;
    if (!result) return;
    if ('error' in result) this.reject(result.error);
    else this.#resolve(result.value);
  }
}
