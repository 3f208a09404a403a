// The GPU type that a job has outgrown: an attempt ran out of memory there, and the next one needs a later type of the
// endpoint's list. Such a job waits apart from the others, under a number that stands for the type.
import { createHash } from 'node:crypto';
import type { StoredJob } from './stored-records.ts';

type Attempts = Pick<StoredJob, 'history'>;
type QueuedJob = Pick<StoredJob, 'status' | 'delayed' | 'history'>;

/** Undefined: any worker may take the job. */
export function findOutgrownGpu({ history }: Attempts): string | undefined {
  for (let i = history.length - 1; i >= 0; i--) {
    const type = history[i]?.outgrownGpuType;
    if (type !== undefined) return type;
  }
  return undefined;
}

/** Above the lanes with another meaning: sql/job-row.ts. */
const FIRST_NUMBER = 2;
const NUMBER_BYTES = 6;

/**
 * Number of a GPU type, at least 2: the same for the same name, however often the endpoint's list changes. Two names get
 * one number once in 2^48.
 */
export function numberGpuType(type: string): number {
  const hash = createHash('sha256').update(type).digest();
  return FIRST_NUMBER + hash.readUIntBE(0, NUMBER_BYTES);
}

/** Number of the type that a ready job has outgrown; 0: any worker may take the job, or it is not ready. */
export function outgrownNumber(job: QueuedJob): number {
  if (job.history.length === 0 || job.status !== 'IN_QUEUE' || job.delayed) return 0;
  const type = findOutgrownGpu(job);
  return type === undefined ? 0 : numberGpuType(type);
}
