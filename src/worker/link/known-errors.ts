// Adapts outcomes to platforms that do not know all error codes of this version.
import type { ErrorCode } from '../../wire/job/job.ts';
import type { CAPABILITIES, Outcome, WorkerWelcome } from '../../wire/link/worker-link.ts';

/** The capability of platforms that know the code; the others are as old as the protocol. */
const CAPABILITY: Partial<Record<ErrorCode, (typeof CAPABILITIES)[number]>> = {
  gpu_out_of_memory: 'device_errors',
  model_process_crashed: 'device_errors',
  gpu_context_lost: 'context_errors',
};

/** An older platform would refuse the report; it gets a `handler_error` that names the code. */
export function adaptOutcome(outcome: Outcome, { capabilities = [] }: WorkerWelcome): Outcome {
  if (outcome.kind !== 'failed') return outcome;
  const { code, message } = outcome.error;
  const needed = CAPABILITY[code];
  if (needed === undefined || capabilities.includes(needed)) return outcome;
  const error = {
    ...outcome.error,
    code: 'handler_error' as const,
    message: `${code}: ${message}`,
  };
  return { ...outcome, error };
}
