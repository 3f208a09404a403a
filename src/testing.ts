// The public API for authors' tests: `import { createHarness, runHandler } from 'millrace/testing'`.
export type { LinkCall } from './harness/faulty-link.ts';
export {
  createHarness,
  Harness,
  type HarnessJobOptions,
  type HarnessOptions,
  type HarnessSchedule,
  type HarnessScheduled,
  type TestedHandler,
} from './harness/harness.ts';
export {
  HarnessBatch,
  type HarnessBatchLine,
  type HarnessBatchOptions,
  type HarnessBatchResult,
} from './harness/harness-batch.ts';
export { HarnessFlow, type HarnessFlowJob } from './harness/harness-flow.ts';
export { HarnessJob } from './harness/harness-job.ts';
export { type HandlerRun, type RunHandlerOptions, runHandler } from './harness/run-handler.ts';
export { JobFailedError } from './wire/job/job.ts';
