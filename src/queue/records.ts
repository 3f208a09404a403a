// A stored job as clients see it. The output's bytes are put in as they are, never parsed.
import { Buffer } from 'node:buffer';
import type { StoredJob } from '../store/store.ts';
import { isTerminal, type JobSummary } from '../wire/job.ts';

/** From (re)queueing to the start of the attempt; so far while it waits. Whole ms. */
export function delayTime(job: StoredJob, now: number): number {
  if (job.status === 'IN_QUEUE') return Math.max(0, now - job.queuedAt);
  const startedAt = job.startedAt ?? job.endedAt ?? now;
  return Math.max(0, startedAt - job.queuedAt);
}

/** Of the last attempt; so far while it runs; 0 before. Whole ms. */
export function executionTime(job: StoredJob, now: number): number {
  if (job.executionMs !== null) return job.executionMs;
  if (job.startedAt === null || job.status === 'IN_QUEUE') return 0;
  return Math.max(0, (job.endedAt ?? now) - job.startedAt);
}

/** The job record's JSON. `output` is JSON already, or undefined when there is none to show. */
export function encodeRecord(job: StoredJob, now: number, output: Uint8Array | undefined): Buffer {
  const head: Record<string, unknown> = {
    id: job.id,
    status: job.status,
    delayTime: delayTime(job, now),
    executionTime: executionTime(job, now),
    attempt: job.attempt,
  };
  if (job.workerId !== null) head['workerId'] = job.workerId;
  if (job.error) head['error'] = job.error;
  if (job.outputKind === 'chunks' && !output) head['outputBytes'] = job.chunkBytes;
  let text = JSON.stringify(head);
  if (job.status === 'IN_PROGRESS' && job.progress !== null) {
    text = `${text.slice(0, -1)},"progress":${job.progress}}`;
  }
  if (!output) return Buffer.from(text);
  return Buffer.concat([Buffer.from(`${text.slice(0, -1)},"output":`), output, Buffer.from('}')]);
}

export function toSummary(job: StoredJob, now: number): JobSummary {
  return {
    id: job.id,
    status: job.status,
    attempt: job.attempt,
    submittedAt: job.submittedAt,
    delayTime: delayTime(job, now),
    executionTime: executionTime(job, now),
  };
}

/** Whether the record of the job can have an output at all. */
export function hasOutput(job: StoredJob): boolean {
  return isTerminal(job.status) && job.status === 'COMPLETED' && job.outputKind !== 'none';
}
