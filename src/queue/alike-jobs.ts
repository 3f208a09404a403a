// Thousands of queued jobs change in the same way: one decision and one statement are enough for them.
import type { StoredJob } from '../store/store.ts';
import type { Transition } from './transition.ts';

/**
 * Whether the cancellation of the job says all about that of others that `Transaction.saveAlike` changes
 * with it. A member that it happens to leave as it was may be another one for them.
 */
export function decidesForAlike(job: StoredJob, { job: after, stopWorker }: Transition): boolean {
  const isUntouched = job.attempt === 0 && job.lease === null && job.webhook === null;
  const endsEarlier = after.expiresAt < job.expiresAt && after.dueAt !== job.dueAt;
  return job.status === 'IN_QUEUE' && isUntouched && endsEarlier && !stopWorker;
}
