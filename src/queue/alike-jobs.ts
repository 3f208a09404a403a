// Thousands of queued jobs change in the same way: one decision and one statement are enough for them.
import type { StoredJob } from '../store/store.ts';
import type { Transition } from './lifecycle/transition.ts';

/**
 * Whether `Transaction.saveAlike` may make this cancellation for the jobs behind this one too. It writes only the
 * members that the cancellation changes; all others stay as they are in each job.
 */
export function decidesForAlike(job: StoredJob, { job: after, stopWorker }: Transition): boolean {
  const isUntouched = job.attempt === 0 && job.lease === null && job.webhook === null;
  const endsEarlier = after.expiresAt < job.expiresAt && after.dueAt !== job.dueAt;
  return job.status === 'IN_QUEUE' && isUntouched && endsEarlier && !stopWorker;
}
