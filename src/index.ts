// The public API for authors of handlers: `import … from 'millrace'`.

export type {
  BatchContext,
  BatchFunction,
  BatchHandlerDefinition,
  BatchJob,
  BatchOptions,
  BatchProduced,
  BatchYield,
  ChildJob,
  ChunkWithMetrics,
  Context,
  HandlerConfig,
  HandlerDefinition,
  HandlerFunction,
  HandlerResult,
  InferInput,
  InferOutput,
  Job,
  JobSchedule,
  MetricsRecorder,
  Produced,
  Schema,
  SchemaIssue,
  SchemaResult,
  SetupContext,
} from './handler/define.ts';
export { defineBatchHandler, defineHandler } from './handler/define.ts';
export { type Check, registerCheck } from './handler/loading/registered-checks.ts';
export { ChildFailedError, StepError } from './handler/step-errors.ts';
export { NonRetryableError, RetryAfterError, type RetryAfterOptions } from './handler/thrown.ts';
export type { Metrics } from './wire/chunk/chunk.ts';
export type { JobPolicy, S3Config } from './wire/job/job.ts';
export type { RetryPolicy } from './wire/job/retry-policy.ts';
export type { Device } from './wire/link/worker-link.ts';
