// Adapts outcomes to platforms that do not know all error codes of this version.
import type { ErrorCode } from '../../wire/job/job.ts';
import type { Outcome, WorkerWelcome } from '../../wire/link/worker-link.ts';

const DEVICE_ERRORS: ReadonlySet<ErrorCode> = new Set([
  'gpu_out_of_memory',
  'model_process_crashed',
]);

/** An older platform would refuse the report; it gets a `handler_error` that names the code. */
export function adaptOutcome(outcome: Outcome, { capabilities = [] }: WorkerWelcome): Outcome {
  if (outcome.kind !== 'failed' || !DEVICE_ERRORS.has(outcome.error.code)) return outcome;
  if (capabilities.includes('device_errors')) return outcome;
  const { code, message } = outcome.error;
  const error = {
    ...outcome.error,
    code: 'handler_error' as const,
    message: `${code}: ${message}`,
  };
  return { ...outcome, error };
}
