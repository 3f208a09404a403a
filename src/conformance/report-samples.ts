// Builds reports and outcomes for tests that play a worker, in this module and in test/conformance.
import type { Lease, LeaseRef, Outcome, Report } from '../wire/link/worker-link.ts';

export const completed = {
  kind: 'completed',
  executionMs: 5,
  output: 'value',
} as const satisfies Outcome;

/** The endpoint decides about the retry. */
export const failed = {
  kind: 'failed',
  executionMs: 5,
  error: { code: 'handler_error', message: 'the reported error' },
  retry: 'default',
} as const satisfies Outcome;

export function refTo({ attempt, jobId, token }: LeaseRef | Lease): LeaseRef {
  return { attempt, jobId, token };
}

export function outcomeOf(lease: LeaseRef, seq: number, outcome: Outcome, body = '') {
  const sample = {
    ...refTo(lease),
    kind: 'outcome',
    seq,
    outcome,
    body: Buffer.from(body),
  } as const;
  return sample satisfies Report;
}

export function progressOf(lease: LeaseRef, seq: number, value: unknown): Report {
  return { ...refTo(lease), kind: 'progress', seq, body: Buffer.from(JSON.stringify(value)) };
}

/** One report with a chunk for each output; `first` is the number of the first chunk. */
export function chunksOf(
  lease: LeaseRef,
  seq: number,
  first: number,
  outputs: readonly unknown[],
): Report {
  const chunks = outputs.map((output) => Buffer.from(JSON.stringify({ output, metrics: {} })));
  const body = Buffer.from(chunks.map((chunk) => chunk.toString()).join(','));
  const sizes = chunks.map((chunk) => chunk.length);
  return { ...refTo(lease), kind: 'chunks', seq, first, sizes, body };
}
