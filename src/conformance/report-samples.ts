// What a worker says of an attempt, as values: for those who play one, here and in the suites of links.
import type { Lease, LeaseRef, Outcome, Report } from '../wire/link/worker-link.ts';

export const completed = {
  kind: 'completed',
  executionMs: 5,
  output: 'value',
} as const satisfies Outcome;

/** To be tried again as often as the endpoint has it. */
export const failed = {
  kind: 'failed',
  executionMs: 5,
  error: { code: 'handler_error', message: 'as it was told' },
  retry: 'default',
} as const satisfies Outcome;

export function refTo({ attempt, jobId, token }: LeaseRef | Lease): LeaseRef {
  return { attempt, jobId, token };
}

export function outcomeOf(lease: LeaseRef, seq: number, outcome: Outcome, body = ''): Report {
  return { ...refTo(lease), kind: 'outcome', seq, outcome, body: Buffer.from(body) };
}

export function progressOf(lease: LeaseRef, seq: number, value: unknown): Report {
  return { ...refTo(lease), kind: 'progress', seq, body: Buffer.from(JSON.stringify(value)) };
}

/** One report of a chunk for each output; `first` is the number of the first one. */
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
