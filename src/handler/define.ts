// The public types of handlers and of batch handlers; defineHandler and defineBatchHandler.
import type { Logger } from 'pino';
import type { Metrics } from '../wire/chunk/chunk.ts';
import type { JobPolicy, S3Config } from '../wire/job/job.ts';
import type { RetryPolicy } from '../wire/job/retry-policy.ts';
import type { Device } from '../wire/link/worker-link.ts';

/**
 * A schema of any library that follows Standard Schema (https://standardschema.dev): zod, valibot,
 * arktype. Only the part that is used here.
 */
export interface Schema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The output type of a schema. */
export type InferOutput<S extends Schema> = NonNullable<S['~standard']['types']>['output'];
/** The input type of a schema. */
export type InferInput<S extends Schema> = NonNullable<S['~standard']['types']>['input'];

export interface Job<Input = unknown> {
  readonly id: string;
  /** The client's input, after the `input` schema if there is one. */
  readonly input: Input;
  /** Where the client wants the job's files, if given (clients of the RunPod API can). */
  readonly s3Config?: S3Config;
  /** The schedule that made the job; absent if a client did. The same in every attempt. */
  readonly schedule?: JobSchedule;
}

export interface JobSchedule {
  readonly id: string;
  /** When the tick was due, Unix ms: the attempt may begin much later. */
  readonly tickAt: number;
  /** A call of `trigger` made the job, at `tickAt`, or the resubmission of a failed job, whose tick this is. */
  readonly triggered?: boolean;
}

/** Metrics that are sent with the job's next chunk. */
export interface MetricsRecorder {
  /** Adds to the counter, which starts at 0. @throws TypeError if it is not a finite number. */
  add(name: string, value: number): void;
  /** Replaces the value. @throws TypeError if it is not a finite number. */
  set(name: string, value: number): void;
}

/** A chunk with its own metrics, created by `ctx.chunk`; yield it. */
export interface ChunkWithMetrics<Output = unknown> {
  readonly output: Output;
  readonly metrics: Metrics;
}

export interface Context {
  /** Aborts on cancel, on timeout, when the lease is lost and when the worker shuts down. */
  readonly signal: AbortSignal;
  /** A pino logger with `job` and `attempt` bound. Read its lines with `millrace jobs logs`. */
  readonly log: Logger;
  /** Devices that the process is pinned to; at least one. */
  readonly devices: readonly Device[];
  /** Number of the attempt, from 1. */
  readonly attempt: number;
  /** When the attempt times out, Unix ms. */
  readonly deadline: number;
  /** W3C trace context of the client's request, to pass on in the handler's own requests. */
  readonly traceparent: string | undefined;
  /** Set only together with `traceparent`. */
  readonly tracestate: string | undefined;
  /** Any JSON; shown as `progress` in the job's status. A later value replaces an earlier one. */
  progress(value: unknown): void;
  /**
   * Holds back the other jobs of this job's `policy.group` until then, at most for a day: a `Date`, or Unix ms. Jobs without
   * a group form one group. For a service that answers 429. This job goes on; throw a `RetryAfterError` to run it again later.
   * @throws TypeError if it is not a time
   */
  pauseGroup(until: Date | number): void;
  /**
   * Holds back the other jobs of a shared limit of the endpoint until then, in all of its endpoints, at most for an hour: a
   * `Date`, or Unix ms. `name`: that of the limit, or its ID. A limit for each group pauses this job's group. @throws TypeError if
   * it is not a time
   */
  pauseLimit(name: string, until: Date | number): void;
  /** `yield ctx.chunk(output, { tokens: 3 })`. @throws TypeError on a metric that is not a finite number. */
  chunk<Output>(output: Output, metrics: Metrics): ChunkWithMetrics<Output>;
  readonly metrics: MetricsRecorder;
  /**
   * Path of a folder for files of this attempt, created on the first call. The worker removes it when the attempt has
   * ended, however it ended. @throws Error if the folder cannot be created, or the attempt has ended
   */
  tempFolder(): string;
  /**
   * Runs `act` once for the job, and remembers its result as JSON: later attempts get it and do not run `act`. If `act` throws,
   * nothing is remembered. Resolves when the platform has stored the result. `name`: unique in the job. @throws StepError
   */
  step<Result>(name: string, act: () => Result | Promise<Result>): Promise<Result>;
  /**
   * Starts a child job once and resolves with its output. Until it has ended, no attempt of this job runs and no slot is held: the
   * attempt ends here, and the handler runs again from its start. @throws ChildFailedError, StepError
   */
  run<Output = unknown>(name: string, child: ChildJob): Promise<Output>;
  /** Goes on after so many ms, or at that time; like `run`, without a slot. At most 30 days. @throws StepError */
  sleep(name: string, time: number | Date): Promise<void>;
  /**
   * Makes this job the last one of its worker process. When it and the other running jobs have
   * ended, a new process takes over. Use it after a job that leaves the GPU or a library in a bad
   * state.
   */
  refreshWorker(): void;
}

/** A job that a handler starts and waits for. */
export interface ChildJob {
  /** ID or name of an endpoint of the same owner. Default: the endpoint of the job. */
  readonly endpoint?: string;
  readonly input: object;
  /** Default of `group`: that of the job. */
  readonly policy?: JobPolicy;
}

/** Argument of `setup`, which runs once in each thread, before the first job. */
export interface SetupContext {
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly devices: readonly Device[];
}

export type HandlerResult =
  | unknown
  | Promise<unknown>
  | AsyncGenerator<unknown, unknown, void>
  | Generator<unknown, unknown, void>;

/** An async function, an async generator or a sync one. */
export type HandlerFunction<Input = unknown> = (job: Job<Input>, ctx: Context) => HandlerResult;

export interface HandlerConfig {
  /**
   * Longest run of one attempt, ms; the job's own execution timeout applies too, the shorter one
   * wins.
   */
  timeoutMs?: number;
  /** Concurrent jobs in one thread. Default 1. */
  concurrency?: number;
  /** Limit for `setup`, ms. Default 600,000, because models take time to load. */
  setupTimeoutMs?: number;
  /**
   * `thread`: jobs share a thread, and with it module state and globals. `job`: each job has a new
   * thread, which loads the module and runs `setup` again; one job at a time. Default `thread`.
   */
  isolation?: 'thread' | 'job';
  /** A new worker process for each job, as if each called `ctx.refreshWorker()`. Default false. */
  refreshWorker?: boolean;
  /**
   * `true`: a returned object with a non-empty member `error` fails the attempt, as on RunPod. `false`: it is a
   * result like any other. Default: it is a result, and the job's log has a warning.
   */
  failOnReturnedError?: boolean;
  /** Whether and when failed attempts are retried. Overrides the endpoint's policy; that of a job overrides it. */
  retry?: RetryPolicy;
}

// biome-ignore lint/suspicious/noConfusingVoidType: what a generator without `return` returns.
type Returned<Output> = Output | void;

/** The ways to return outputs of one type: a value, a promise, or a stream of them. */
export type Produced<Output> =
  | Output
  | Promise<Output>
  | AsyncGenerator<Output | ChunkWithMetrics<Output>, Returned<Output>, void>
  | Generator<Output | ChunkWithMetrics<Output>, Returned<Output>, void>
  | AsyncIterable<Output | ChunkWithMetrics<Output>>;

/** The members that both kinds of definition have. */
export interface CommonDefinition<Input extends Schema, Output extends Schema> {
  /** Validates each job's input; the handler gets the result. */
  input?: Input;
  /**
   * JSON Schema of what callers send, a plain object of at most 64 KB, for the form of the console. Nothing checks
   * inputs against it. Default: derived from `input`, if its library can (zod 4, or any with Standard JSON Schema).
   */
  inputSchema?: Readonly<Record<string, unknown>>;
  /** Validates each job's output and, for a stream, each yielded one. */
  output?: Output;
  setup?: (ctx: SetupContext) => unknown;
  teardown?: () => unknown;
  config?: HandlerConfig;
}

export interface HandlerDefinition<
  Input extends Schema,
  Output extends Schema,
  Result = Produced<InferInput<Output>>,
> extends CommonDefinition<Input, Output> {
  /** The handler itself; with an `output` schema, it must return or yield matching values. */
  run: (job: Job<InferOutput<Input>>, ctx: Context) => Result;
}

/** A definition without an `input` schema. The type of the input is that of `run`; nothing checks it. */
interface UncheckedHandlerDefinition<Input, Output extends Schema, Result>
  extends Omit<CommonDefinition<Schema, Output>, 'input'> {
  run: (job: Job<Input>, ctx: Context) => Result;
  input?: undefined;
}

/**
 * Defines a handler module in one value: `export default defineHandler({ input: z.object({…}), run
 * })`
 */
export function defineHandler<
  Input,
  Output extends Schema = Schema<unknown, unknown>,
  Result extends Produced<InferInput<Output>> = Produced<InferInput<Output>>,
>(
  definition: UncheckedHandlerDefinition<Input, Output, Result>,
): HandlerDefinition<Schema<Input>, Output, Result>;
export function defineHandler<
  Input extends Schema = Schema<unknown, unknown>,
  Output extends Schema = Schema<unknown, unknown>,
  // Keeps the type that `run` returns, for clients and tests.
  Result extends Produced<InferInput<Output>> = Produced<InferInput<Output>>,
>(definition: HandlerDefinition<Input, Output, Result>): HandlerDefinition<Input, Output, Result>;
export function defineHandler(definition: object): object {
  return definition;
}

type JobMember =
  | 'attempt'
  | 'deadline'
  | 'log'
  | 'metrics'
  | 'pauseGroup'
  | 'pauseLimit'
  | 'progress'
  | 'signal'
  | 'tempFolder'
  | 'traceparent'
  | 'tracestate';

/** One job of a batch, with the members of `ctx` that belong to this job alone. */
export interface BatchJob<Input = unknown> extends Job<Input>, Pick<Context, JobMember> {}

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
type BatchReturned<Output> = readonly (Output | undefined)[] | void;

/**
 * An array with the output of each job, in the order of `jobs`; the entry of a failed job is ignored.
 * Or a stream of chunks of any of the jobs. A stream may return such an array at its end.
 */
export type BatchProduced<Output> =
  | readonly (Output | undefined)[]
  | Promise<readonly (Output | undefined)[]>
  | AsyncGenerator<BatchYield<Output>, BatchReturned<Output>, void>
  | Generator<BatchYield<Output>, BatchReturned<Output>, void>
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
