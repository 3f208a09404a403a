// Runs one job for each of many inputs, a bounded number at a time, with results in the order of the inputs.
import { JobFailedError, type JobPolicy, type JobRecord } from '../../wire/job/job.ts';

/** Range of `concurrency`: each job that runs holds a connection to the platform. */
export const CONCURRENCY = { min: 1, max: 1_000, default: 16 } as const;

/** Of one input, as of `Promise.allSettled`. `reason`: a JobFailedError, ApiError or UnreachableError. */
export type RunResult<Output = unknown> = PromiseSettledResult<JobRecord<Output>>;

export interface RunAllProgress<Output = unknown> {
  /** The input that has just ended, from 0, and its result. */
  index: number;
  result: RunResult<Output>;
  /** Inputs that have ended, and how many of them failed. */
  done: number;
  failed: number;
  /** Number of inputs; undefined if they come from an iterator. */
  total: number | undefined;
}

export interface RunAllOptions<Output = unknown> {
  /** Most jobs that are queued or running at a time: 1 to 1,000, default 16. */
  concurrency?: number;
  /** Called when an input has ended, in the order of the ends. If it throws, `runAll` rejects. */
  onProgress?: (progress: RunAllProgress<Output>) => void;
  policy?: JobPolicy;
  /**
   * Cancels the jobs that have not ended; `runAll` then rejects with the signal's reason. A job whose submission was
   * under way may still run.
   */
  signal?: AbortSignal;
}

/** The calls that it makes. */
export interface JobCalls<Input, Output> {
  run(
    input: Input,
    options: { policy?: JobPolicy; idempotencyKey: string; signal: AbortSignal },
  ): Promise<{ id: string }>;
  wait(id: string, options: { signal: AbortSignal }): Promise<JobRecord<Output>>;
  cancel(id: string): Promise<unknown>;
}

export type Inputs<Input> = Iterable<Input> | AsyncIterable<Input>;

/** @throws RangeError, the signal's reason, and what `inputs` or `onProgress` throw */
export async function runAll<Input, Output>(
  calls: JobCalls<Input, Output>,
  inputs: Inputs<Input>,
  options: RunAllOptions<Output>,
): Promise<RunResult<Output>[]> {
  const { concurrency = CONCURRENCY.default, signal } = options;
  const { max, min } = CONCURRENCY;
  if (!Number.isInteger(concurrency) || concurrency < min || concurrency > max) {
    throw new RangeError(
      `concurrency must be a whole number from ${min} to ${max}, not ${concurrency}`,
    );
  }
  signal?.throwIfAborted();
  const run = new RunAllCall(calls, inputs, options);
  const onAbort = () => run.abort(signal?.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    return await run.complete(concurrency);
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
}

class RunAllCall<Input, Output> {
  readonly #calls: JobCalls<Input, Output>;
  readonly #options: RunAllOptions<Output>;
  readonly #iterator: Iterator<Input> | AsyncIterator<Input>;
  readonly #total: number | undefined;
  readonly #results: RunResult<Output>[] = [];
  readonly #abort = new AbortController();
  /** Distinguishes the jobs of this call: a repeated submission then starts no second job. */
  readonly #callId = crypto.randomUUID();
  /** Ends the waits for inputs that may never come. */
  readonly #aborted = new Promise<undefined>((resolve) => {
    this.#abort.signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
  #taken = 0;
  #done = 0;
  #failed = 0;

  constructor(
    calls: JobCalls<Input, Output>,
    inputs: Inputs<Input>,
    options: RunAllOptions<Output>,
  ) {
    this.#calls = calls;
    this.#options = options;
    this.#total = Array.isArray(inputs) ? inputs.length : undefined;
    this.#iterator =
      Symbol.asyncIterator in inputs ? inputs[Symbol.asyncIterator]() : inputs[Symbol.iterator]();
  }

  abort(reason: unknown): void {
    this.#abort.abort(reason);
  }

  async complete(concurrency: number): Promise<RunResult<Output>[]> {
    const lanes = Array.from({ length: Math.min(concurrency, this.#total ?? concurrency) }, () =>
      this.#work().catch((error: unknown) => {
        this.abort(error);
        throw error;
      }),
    );
    const ends = await Promise.allSettled(lanes);
    const { signal } = this.#abort;
    if (!signal.aborted) return this.#results;
    // Not awaited: a generator that waits for something returns only after that.
    void Promise.resolve(this.#iterator.return?.()).catch(() => {});
    throw signal.reason ?? ends.find((end) => end.status === 'rejected')?.reason;
  }

  /** Runs one input after the other until there is none. */
  async #work(): Promise<void> {
    const { signal } = this.#abort;
    for (;;) {
      // Several lanes may ask an iterator at once; it answers them in order.
      const index = this.#taken++;
      const next = await Promise.race([this.#iterator.next(), this.#aborted]);
      signal.throwIfAborted();
      if (next === undefined || next.done) return;
      const result = await this.#runOne(next.value, index);
      signal.throwIfAborted();
      this.#results[index] = result;
      this.#done++;
      if (result.status === 'rejected') this.#failed++;
      const [done, failed, total] = [this.#done, this.#failed, this.#total];
      this.#options.onProgress?.({ index, result, done, failed, total });
    }
  }

  async #runOne(input: Input, index: number): Promise<RunResult<Output>> {
    const { policy } = this.#options;
    const { signal } = this.#abort;
    let id: string | undefined;
    try {
      const idempotencyKey = `${this.#callId}-${index}`;
      const options = { idempotencyKey, signal, ...(policy && { policy }) };
      ({ id } = await this.#calls.run(input, options));
      const record = await this.#calls.wait(id, { signal });
      if (record.status !== 'COMPLETED') throw new JobFailedError(record);
      return { status: 'fulfilled', value: record };
    } catch (reason) {
      // Nobody waits for its result. If it cannot be cancelled, it has ended or runs on.
      if (signal.aborted && id !== undefined) await this.#calls.cancel(id).catch(() => {});
      return { status: 'rejected', reason };
    }
  }
}
