// What happened to a job, in order, from what its row has anyway. Pure; nothing is written for it.
import type { StoredJob } from '../store/store.ts';
import { isTerminal, type TimelineEntry } from '../wire/job.ts';

/**
 * At most two entries for each failed attempt and six more. Of attempts that were released, the row knows the last one
 * only, and of a retried job the time of the last retry.
 */
export function describeTimeline(job: StoredJob): TimelineEntry[] {
  const { attempt, endedAt, history, queuedAt, status, submittedAt } = job;
  const entries: TimelineEntry[] = [{ at: submittedAt, event: 'submitted' }];
  for (const failed of history) {
    const { code, endedAt: at, message, outgrownGpuType, startedAt, workerId } = failed;
    const about = { attempt: failed.attempt, workerId };
    if (startedAt !== undefined) entries.push({ at: startedAt, event: 'started', ...about });
    const event = code === 'lease_expired' ? 'lease_lost' : 'failed';
    const outgrown = outgrownGpuType === undefined ? {} : { outgrownGpuType };
    entries.push({ at, event, ...about, code, message, ...outgrown });
  }
  const last = history.at(-1)?.attempt ?? 0;
  const isRunOrOver = status !== 'IN_QUEUE';
  // The attempt before the last queueing, if it did not fail.
  const before = isRunOrOver && job.startedAt !== null ? attempt - 1 : attempt;
  if (before > last) entries.push(describeReturn(job, before));
  else if (queuedAt !== submittedAt) entries.push({ at: queuedAt, event: 'queued' });
  if (status === 'IN_QUEUE' && job.delayed) entries.push({ at: job.availableAt, event: 'due' });
  if (isRunOrOver && job.startedAt !== null && attempt > last) {
    const worker = job.workerId === null ? {} : { workerId: job.workerId };
    entries.push({ at: job.startedAt, event: 'started', attempt, ...worker });
  }
  if (endedAt !== null && isTerminal(status)) {
    const after = attempt > 0 && job.startedAt !== null ? { attempt } : {};
    entries.push({ at: endedAt, event: 'ended', status, ...after });
  }
  return entries.toSorted((a, b) => a.at - b.at);
}

/** How an attempt went back to the queue without a failure. A retry by a client forgets the attempts before. */
function describeReturn(
  { lease, queuedAt, releases, solo, workerId }: StoredJob,
  attempt: number,
): TimelineEntry {
  if (lease?.lost === 'release') {
    return { at: queuedAt, event: 'lease_lost', attempt, workerId: lease.workerId };
  }
  if (releases === 0 && !solo) return { at: queuedAt, event: 'queued' };
  // The worker of an earlier attempt is not known once another one runs.
  const worker = lease === null && workerId !== null ? { workerId } : {};
  return { at: queuedAt, event: 'released', attempt, ...worker };
}
