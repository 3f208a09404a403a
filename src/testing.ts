// The public door for authors' tests: `import { createHarness, runHandler } from 'millrace/testing'`.
export {
  createHarness,
  Harness,
  HarnessJob,
  type HarnessOptions,
  JobFailedError,
  type TestedHandler,
} from './harness/harness.ts';
export { type HandlerRun, type RunHandlerOptions, runHandler } from './harness/run-handler.ts';
