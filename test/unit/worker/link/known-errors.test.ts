import { describe, expect, it } from 'vitest';
import type { ErrorCode } from '../../../../src/wire/job/job.ts';
import type { Outcome, WorkerWelcome } from '../../../../src/wire/link/worker-link.ts';
import { adaptOutcome } from '../../../../src/worker/link/known-errors.ts';

const terms: WorkerWelcome = { protocol: 1, leaseMs: 1, renewEveryMs: 1, takeWaitMs: 1 };

function failed(code: ErrorCode): Outcome {
  return { kind: 'failed', executionMs: 1, error: { code, message: 'm' }, retry: 'default' };
}

describe.each([
  ['gpu_out_of_memory', 'device_errors'],
  ['model_process_crashed', 'device_errors'],
  ['gpu_context_lost', 'context_errors'],
] as const)('the code %s', (code, capability) => {
  it('goes to a platform that knows it', () => {
    const outcome = adaptOutcome(failed(code), { ...terms, capabilities: [capability] });
    expect(outcome).toEqual(failed(code));
  });

  it.each([[undefined], [['progress', 'log']]])('is a handler_error for others: %s', (known) => {
    const welcome = { ...terms, ...(known && { capabilities: known }) };
    expect(adaptOutcome(failed(code), welcome)).toEqual({
      ...failed(code),
      error: { code: 'handler_error', message: `${code}: m` },
    });
  });
});

it('other outcomes are unchanged', () => {
  const completed: Outcome = { kind: 'completed', executionMs: 1, output: 'value' };
  for (const outcome of [completed, failed('thread_crashed')]) {
    expect(adaptOutcome(outcome, terms)).toBe(outcome);
  }
});
