// Many jobs in one call, with results in the order of the jobs. runMany only submits them, many with each request; runAll
// also waits for their ends and bounds how many run at a time.
import { JobFailedError, type JobPolicy } from '../../wire/job/job.ts';
import type { JobRecord } from '../../wire/job/job-records.ts';
import { requireJsonInput } from '../../wire/job/json-input.ts';
import type { ApiCaller } from '../api-caller.ts';
import {
  chooseTrace,
  type JobOptions,
  type JobReference,
  SHARED_REQUEST,
  Submissions,
  type TraceOptions,
} from './submissions.ts';

/** A job to submit: its input, and the options that `run` takes. */
export interface NewJob<Input = unknown> extends JobOptions {
  input: Input;
}

/** Of one job, as of `Promise.allSettled`. `reason`: an ApiError or UnreachableError. */
export type SubmitResult = PromiseSettledResult<JobReference>;

export interface RunManyProgress {
  /** The job that has just been submitted or refused, from 0, and its result. */
  index: number;
  result: SubmitResult;
  /** Jobs with a result, and how many of them were refused. */
  done: number;
  failed: number;
}

export interface RunManyOptions extends TraceOptions {
  /** Called with each result, in the order of the answers. If it throws, `runMany` rejects. */
  onProgress?: (progress: RunManyProgress) => void;
  /** Ends the submissions; `runMany` then rejects with the signal's reason. The jobs that were submitted stay. */
  signal?: AbortSignal;
}

/** Most jobs between the source and their answers: a request more than may be under way. */
const WINDOW = {
  jobs: (SHARED_REQUEST.underWay + 1) * SHARED_REQUEST.jobs,
  /** Of their JSON, in UTF-16 units; one longer job has the window for itself. */
  length: 8_000_000,
} as const;

/** @throws the signal's reason, and what `jobs` or `onProgress` throw */
export async function runMany<Input>(
  { caller, endpoint }: { caller: ApiCaller; endpoint: string },
  jobs: Inputs<NewJob<Input>>,
  { onProgress, signal, traceparent, tracestate }: RunManyOptions,
): Promise<SubmitResult[]> {
  const trace = await chooseTrace({ traceparent, tracestate });
  signal?.throwIfAborted();
  const submissions = new Submissions({ caller, endpoint, canShare: true, trace });
  const run = new ManySubmissions(submissions, onProgress);
  const onAbort = () => run.end(signal?.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    return await run.complete(jobs);
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
}

class ManySubmissions {
  readonly #submissions: Submissions;
  readonly #onProgress: RunManyOptions['onProgress'];
  readonly #results: SubmitResult[] = [];
  /** Ends the requests when the run has failed. */
  readonly #abort = new AbortController();
  /** Jobs that were submitted and have no result, and the length of their JSON. */
  #jobs = 0;
  #length = 0;
  #done = 0;
  #failed = 0;
  /** Continue the current wait when a result has come, and when the run has failed. */
  #onResult = () => {};
  #onEnd = () => {};

  constructor(submissions: Submissions, onProgress: RunManyOptions['onProgress']) {
    this.#submissions = submissions;
    this.#onProgress = onProgress;
  }

  end(reason: unknown): void {
    this.#abort.abort(reason);
    this.#onEnd();
  }

  async complete<Input>(jobs: Inputs<NewJob<Input>>): Promise<SubmitResult[]> {
    const { signal } = this.#abort;
    const iterator =
      Symbol.asyncIterator in jobs ? jobs[Symbol.asyncIterator]() : jobs[Symbol.iterator]();
    try {
      for (let index = 0; ; index++) {
        signal.throwIfAborted();
        // No wait that is not needed: jobs that are submitted without one share a request.
        const read = iterator.next();
        const next = read instanceof Promise ? await this.#orEnd(read) : read;
        if (next.done) break;
        const body = this.#encode(next.value, index);
        if (body === undefined) continue;
        if (!this.#hasRoom(body)) await this.#until(() => this.#hasRoom(body));
        this.#submit(body, { index, isRepeatable: next.value.idempotencyKey !== undefined });
      }
      await this.#until(() => this.#jobs === 0);
    } catch (error) {
      this.end(error);
    }
    if (!signal.aborted) return this.#results;
    // Not awaited: a generator that waits for something returns only after that.
    void Promise.resolve(iterator.return?.()).catch(() => {});
    throw signal.reason;
  }

  /** @throws the signal's reason, however long the source waits */
  #orEnd<T>(read: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#onEnd = () => reject(this.#abort.signal.reason);
      read.then(resolve, reject);
    });
  }

  /** What is no job or not JSON is rejected by itself: plain JavaScript may pass anything. */
  #encode(job: unknown, index: number): string | undefined {
    try {
      if (typeof job !== 'object' || job === null) {
        throw new TypeError(`jobs[${index}] must be an object with an input, not ${job}`);
      }
      if ('input' in job) requireJsonInput(job.input);
      return JSON.stringify(job);
    } catch (reason) {
      this.#finish(index, { status: 'rejected', reason });
      return undefined;
    }
  }

  #hasRoom({ length }: string): boolean {
    if (this.#jobs === 0) return true;
    return this.#jobs < WINDOW.jobs && this.#length + length <= WINDOW.length;
  }

  #submit(body: string, { index, isRepeatable }: { index: number; isRepeatable: boolean }): void {
    this.#jobs++;
    this.#length += body.length;
    const { signal } = this.#abort;
    const finish = (result: SubmitResult) => {
      this.#jobs--;
      this.#length -= body.length;
      this.#finish(index, result);
    };
    this.#submissions.submit({ body, isRepeatable, signal }).then(
      (value) => finish({ status: 'fulfilled', value }),
      (reason: unknown) => finish({ status: 'rejected', reason }),
    );
  }

  #finish(index: number, result: SubmitResult): void {
    if (this.#abort.signal.aborted) return;
    this.#results[index] = result;
    this.#done++;
    if (result.status === 'rejected') this.#failed++;
    try {
      this.#onProgress?.({ index, result, done: this.#done, failed: this.#failed });
    } catch (error) {
      this.end(error);
    }
    this.#onResult();
  }

  /** Resolves at once or after a result. @throws the signal's reason */
  async #until(isTrue: () => boolean): Promise<void> {
    const { signal } = this.#abort;
    while (!isTrue()) {
      signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        this.#onResult = resolve;
        this.#onEnd = resolve;
      });
    }
    signal.throwIfAborted();
  }
}

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
