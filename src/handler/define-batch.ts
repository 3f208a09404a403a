// The public types of batch handlers, and defineBatchHandler.
import type { Metrics } from '../wire/chunk/chunk.ts';
import type { Device } from '../wire/link/worker-link.ts';
import type { CommonDefinition, Context, InferInput, InferOutput, Job, Schema } from './define.ts';

type OwnOfJob =
  | 'attempt'
  | 'deadline'
  | 'log'
  | 'metrics'
  | 'progress'
  | 'signal'
  | 'tempFolder'
  | 'traceparent'
  | 'tracestate';

/** One job of a batch, with the members of `ctx` that belong to this job alone. */
export interface BatchJob<Input = unknown> extends Job<Input>, Pick<Context, OwnOfJob> {}

/** One chunk of one job, yielded by a batch handler that streams. */
export interface BatchYield<Output = unknown> {
  /** The job, or its index in `jobs`. */
  readonly job: BatchJob | number;
  readonly output: Output;
  /** Metrics of this chunk. */
  readonly metrics?: Metrics;
}

export interface BatchContext {
  /** Aborts when all jobs of the batch have been stopped or failed: nobody needs the result. */
  readonly signal: AbortSignal;
  /** Writes to the worker's log, with `batch` and `jobs` in every line. A job's own log: `job.log`. */
  readonly log: Context['log'];
  /** Devices that the process is pinned to; at least one. */
  readonly devices: readonly Device[];
  /**
   * Fails one job at once, as if it had thrown `error` alone; the others go on. Later outputs for
   * the job are ignored. @throws TypeError if the job is not one of this batch
   */
  fail(job: BatchJob | number, error: unknown): void;
  /** As `ctx.refreshWorker` of other handlers: these jobs are the last ones of the process. */
  refreshWorker(): void;
}

// biome-ignore lint/suspicious/noConfusingVoidType: what a generator without `return` returns.
type Returned<Output> = readonly (Output | undefined)[] | void;

/**
 * An array with the output of each job, in the order of `jobs`; the entry of a failed job is ignored.
 * Or a stream of chunks of any of the jobs. A stream may return such an array at its end.
 */
export type BatchProduced<Output> =
  | readonly (Output | undefined)[]
  | Promise<readonly (Output | undefined)[]>
  | AsyncGenerator<BatchYield<Output>, Returned<Output>, void>
  | Generator<BatchYield<Output>, Returned<Output>, void>
  | AsyncIterable<BatchYield<Output>>;

export type BatchFunction<Input = unknown, Output = unknown> = (
  jobs: readonly BatchJob<Input>[],
  ctx: BatchContext,
) => BatchProduced<Output>;

/** How jobs form batches. */
export interface BatchOptions<Input = unknown> {
  /** Most jobs in a batch, 1 to 1,024. */
  maxSize: number;
  /** A batch that is not full starts this long after its first job arrived, ms, 0 to 10,000. */
  maxWaitMs: number;
  /** Batches that run at the same time in one thread, 1 to 16. Default 1. */
  maxInFlight?: number;
  /**
   * Jobs share a batch only if they have the same key, such as the model's name. At most 256
   * characters; called once for each job. Default: all jobs can share a batch.
   */
  key?: (input: Input) => string;
}

export interface BatchHandlerDefinition<
  Input extends Schema,
  Output extends Schema,
  Result = BatchProduced<InferInput<Output>>,
> extends CommonDefinition<Input, Output> {
  batch: BatchOptions<InferOutput<Input>>;
  /** Runs all jobs of a batch. It may be called again for some of them if it throws. */
  run: (jobs: readonly BatchJob<InferOutput<Input>>[], ctx: BatchContext) => Result;
}

/** A definition without an `input` schema. The type of the inputs is that of `run`; nothing checks them. */
interface UncheckedBatchDefinition<Input, Output extends Schema, Result>
  extends Omit<CommonDefinition<Schema, Output>, 'input'> {
  batch: BatchOptions<Input>;
  run: (jobs: readonly BatchJob<Input>[], ctx: BatchContext) => Result;
  input?: undefined;
}

/**
 * Defines a handler that runs several jobs at once: `export default defineBatchHandler({ input,
 * batch: { maxSize: 8, maxWaitMs: 10 }, run })`
 */
export function defineBatchHandler<
  Input,
  Output extends Schema = Schema<unknown, unknown>,
  Result extends BatchProduced<InferInput<Output>> = BatchProduced<InferInput<Output>>,
>(
  definition: UncheckedBatchDefinition<Input, Output, Result>,
): BatchHandlerDefinition<Schema<Input>, Output, Result>;
export function defineBatchHandler<
  Input extends Schema = Schema<unknown, unknown>,
  Output extends Schema = Schema<unknown, unknown>,
  // Keeps the type that `run` returns, for clients and tests.
  Result extends BatchProduced<InferInput<Output>> = BatchProduced<InferInput<Output>>,
>(
  definition: BatchHandlerDefinition<Input, Output, Result>,
): BatchHandlerDefinition<Input, Output, Result>;
export function defineBatchHandler(definition: object): object {
  return definition;
}
