// The status of a job in words and in a tone.
import type { JobStatus } from '../../../../src/client.ts';
import type { Tone } from '../badge.tsx';

export const JOB_TONES: Readonly<Record<JobStatus, Tone>> = {
  IN_QUEUE: 'warn',
  IN_PROGRESS: 'busy',
  COMPLETED: 'good',
  FAILED: 'bad',
  CANCELLED: 'plain',
  TIMED_OUT: 'bad',
};

const WORDS: Readonly<Record<JobStatus, string>> = {
  IN_QUEUE: 'Queued',
  IN_PROGRESS: 'Running',
  COMPLETED: 'Completed',
  FAILED: 'Failed',
  CANCELLED: 'Cancelled',
  TIMED_OUT: 'Timed out',
};

export function sayStatus(status: JobStatus): string {
  return WORDS[status];
}
