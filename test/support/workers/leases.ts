// Leases for tests of executors, which use little more than the input.
import type { Device, Lease } from '../../../src/wire/link/worker-link.ts';

export const cpu: Device = { kind: 'cpu', index: 0, uuid: 'cpu-0', name: 'cpu', memoryBytes: 1024 };

let made = 0;

export function makeLease(input: unknown, jobId = `job-${++made}`): Lease {
  return {
    jobId,
    attempt: 1,
    token: `token-${jobId}`,
    executionTimeoutMs: 60_000,
    solo: false,
    submittedAt: 0,
    input: Buffer.from(JSON.stringify(input)),
  };
}

/** Parses the output of an execution. */
export function readOutput(end: { output: Uint8Array | undefined }): unknown {
  return end.output === undefined ? undefined : JSON.parse(Buffer.from(end.output).toString());
}
